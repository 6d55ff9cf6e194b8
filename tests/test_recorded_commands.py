"""Commands compose the cells that are recorded in tests/recorded/commands.json: names, levels and settings."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from recorded_commands import command_record, differences, recorded, reference_model, same

RECORD = recorded()
# A bare preset takes Hydra a quarter of a second, a catalogue has a hundred cells.
LONG = re.compile(r"ablate \+(preset=(?!gpt2$|gemma2$|t5$)\w+|experiment=catalogue(_tuned|_size)?)")


@pytest.fixture(scope="module")
def reference() -> tuple[dict[str, Any], dict[str, Any]]:
    return reference_model()


def changes(before: Any, after: Any, where: str) -> Iterator[str]:
    """Every difference of two records, with its place."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in differences(before, after) | differences(after, before):
            yield from changes(before.get(key, "nothing"), after.get(key, "nothing"), f"{where}, {key}")
    elif not same(before, after):
        yield f"{where}: {before!r} is recorded, now {after!r}"


def cell_changes(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Iterator[str]:
    """Every difference of two lists of cells, by their labels."""
    old_labels = [cell["label"] for cell in before]
    new_labels = [cell["label"] for cell in after]
    if old_labels != new_labels:
        yield f"the cells are recorded as {', '.join(old_labels)}; now {', '.join(new_labels)}"
        return
    for old, new in zip(before, after, strict=True):
        yield from changes(old, new, f"cell {old['label']!r}")


def test_reference_model_is_as_recorded(reference):
    model, study = reference
    wrong = [*changes(RECORD["model"], model, "ablate"), *changes(RECORD["study"], study, "ablate")]
    assert not wrong, "\n".join(wrong)


COMMANDS = [pytest.param(each, marks=pytest.mark.slow if LONG.fullmatch(each) else ()) for each in RECORD["commands"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_composes_its_recorded_cells(command, reference):
    before, after = RECORD["commands"][command], command_record(command, *reference)
    wrong = [*changes(before["study"], after["study"], "study"), *cell_changes(before["cells"], after["cells"])]
    assert not wrong, "\n".join([command, *wrong])
