"""A manifest that cannot be one is refused in one line, with exit code 2, by every command that reads it."""

import contextlib
import functools
import itertools
import operator
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate.config.errors import Corrupt
from ablate.runs.files import read_json
from ablate.runs.manifest import read_manifest, study_folder
from ablate.runs.study import load_study
from hostile.arsenal import raw_json
from hostile.conftest import STUDY, Tried

Manifest = dict[str, Any]

MISTAKES: dict[str, Callable[[Manifest], object]] = {
    "runs as strings": lambda m: m.update(runs=[run["path"] for run in m["runs"]]),
    "a null path": lambda m: m["runs"][0].update(path=None),
    "a path above": lambda m: m["runs"][0].update(path="../../etc/s0-x"),
    "an absolute path": lambda m: m["runs"][0].update(path="/etc/passwd"),
    "a cell without a configuration": lambda m: m["cells"][0].update(config=7),
    "a cell's name above": lambda m: m["cells"][0].update(name="../../etc"),
    "a cell of no task": lambda m: m["cells"][0].update(task="nothing"),
    "a cell whose levels are lists": lambda m: m["cells"][0].update(levels={"norm": [1]}),
    "a factor without levels": lambda m: m.update(factors={"norm": 7}),
    "an unknown reference": lambda m: m.update(reference={"norm": "nothing"}),
    "a reference of no factor": lambda m: m.update(reference={"nothing": "ln"}),
    "seeds as texts": lambda m: m.update(seeds=["0"]),
    "a run of no cell": lambda m: m["runs"][0].update(cell="nothing"),
    "a cell that cannot be a key": lambda m: m["runs"][0].update(cell=["c"]),
    "a study's name above": lambda m: m.update(study="../../../tmp"),
    "an exchange above": lambda m: m.update(exchange="../../.."),
    "exchange as a list": lambda m: m.update(exchange=["x"]),
    "a seed that is none": lambda m: m["runs"][0].update(seed=-1),
    "a size that is none": lambda m: m["cells"][0].update(params=float("nan")),
    "a text without tokens": lambda m: next(iter(m["tasks"].values())).update(train_tokens=0),
    "no seeds": lambda m: m.pop("seeds"),
    "no runs": lambda m: m.update(runs=[]),
}


def break_manifest(results: Path, change: Callable[[Manifest], object]) -> None:
    """Change the manifest as an editor would."""
    file = study_folder(results, STUDY) / "manifest.json"
    manifest = read_json(file)
    change(manifest)
    raw_json(file, manifest)


def test_what_cannot_be_a_manifest_is_refused(place: Path, results: Path) -> None:
    honest = read_json(study_folder(results, STUDY) / "manifest.json")
    for mistake, change in MISTAKES.items():
        raw_json(study_folder(results, STUDY) / "manifest.json", honest)
        break_manifest(results, change)
        with pytest.raises(Corrupt, match=r"manifest\.json (has|names)") as refused:
            pytest.fail(f"{mistake} is read: {read_manifest(results, STUDY)}")
        assert "\n" not in str(refused.value), mistake


def test_every_command_says_so_in_one_line(place: Path, results: Path, tried: Tried) -> None:
    break_manifest(results, MISTAKES["an unknown reference"])
    before = sorted(place.rglob("*"))
    for command, (code, said) in tried().items():
        if command not in ("clean", "studies"):  # which name it and go on with the rest
            assert code == 2 and len(said.splitlines()) == 1, (command, code, said)
        assert "manifest.json" in said, (command, said)
    assert sorted(place.rglob("*")) == before


def test_what_is_no_json_is_refused(place: Path, results: Path, tried: Tried) -> None:
    for content in ("[1]", "7", "null", "{", "[" * 100_000, '{"a": ' * 50_000, "\x00", '"\\ud800"', "{}"):
        (study_folder(results, STUDY) / "manifest.json").write_text(content)
        for command, (code, said) in tried("status", "sync").items():
            assert code == 2 and len(said.splitlines()) == 1 and "manifest.json" in said, (command, said)


def test_a_study_that_a_command_goes_on_with_is_planned_anew(place: Path, results: Path, plan: Any) -> None:
    """`python -m ablate` names the damage, and goes by nothing that stands in the manifest."""
    break_manifest(results, MISTAKES["runs as strings"])
    planned = plan("norm=ln,rms", "seeds=1", f"study={STUDY}", f"results_dir={results}")
    assert any("has runs[0]" in note and "it is set aside" in note for note in planned.notes)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of a list's entries, which are alike, the first's."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


def test_whatever_stands_anywhere_a_study_is_read_or_refused(results: Path, folders: list[Path]) -> None:
    """Another value in each place of the manifest, of a configuration in every third: no error but Corrupt."""
    shutil.rmtree(folders[1])  # the files of one run suffice
    file = study_folder(results, STUDY) / "manifest.json"
    manifest = read_json(file)
    values = itertools.cycle([None, "x", [[1]], {"a": {"b": 1}}, 7, [], {}])
    chosen = [place for i, place in enumerate(places(manifest)) if "config" not in place[:-1] or i % 3 == 0]
    for (*above, key), value in zip(chosen, values, strict=False):
        node = functools.reduce(operator.getitem, above, manifest)
        honest, node[key] = node[key], value
        raw_json(file, manifest)
        with contextlib.suppress(Corrupt):
            load_study(results, STUDY)
        node[key] = honest
