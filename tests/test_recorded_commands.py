"""Commands compose the cells that are recorded in tests/recorded/commands.json: names, levels and settings."""

import json
import re
from typing import Any

import pytest
from recorded_commands import command_record, recorded, reference_model

RECORD = recorded()
# A bare preset takes Hydra a quarter of a second, a catalogue has a hundred cells.
LONG = re.compile(r"ablate \+(preset=(?!gpt2$|gemma2$|t5$)\w+|experiment=catalogue(_tuned|_size)?)")


@pytest.fixture(scope="module")
def reference() -> tuple[dict[str, Any], dict[str, Any]]:
    return reference_model()


def lines(record: Any) -> list[str]:
    """A record as its file has it, where 1, 1.0 and true are three values; pytest shows the lines that differ."""
    return json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def test_reference_model_is_as_recorded(reference):
    model, study = reference
    assert lines(model) == lines(RECORD["model"]) and lines(study) == lines(RECORD["study"])


COMMANDS = [pytest.param(each, marks=pytest.mark.slow if LONG.fullmatch(each) else ()) for each in RECORD["commands"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_composes_its_recorded_cells(command, reference):
    assert lines(command_record(command, *reference)) == lines(RECORD["commands"][command])
