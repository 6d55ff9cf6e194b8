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
from hostile.arsenal import STUDY, write_sealed

Manifest = dict[str, Any]

MISTAKES: dict[str, Callable[[Manifest], object]] = {
    "no seeds": lambda m: m.pop("seeds"),
    "seeds as texts": lambda m: m.update(seeds=["0"]),
    "a path above": lambda m: m["runs"][0].update(path="../../etc/s0-x"),
    "an absolute path": lambda m: m["runs"][0].update(path="/etc/passwd"),
    "a study's name above": lambda m: m.update(study="../../../tmp"),
    "a cell's name above": lambda m: m["cells"][0].update(name="../../etc"),
    "a run of no cell": lambda m: m["runs"][0].update(cell="nothing"),
    "an unknown reference": lambda m: m.update(reference={"norm": "nothing"}),
}


def manifest_file(results: Path) -> Path:
    return study_folder(results, STUDY) / "manifest.json"


def break_manifest(results: Path, mistake: str) -> None:
    """Change the manifest as an editor would."""
    manifest = read_json(manifest_file(results))
    MISTAKES[mistake](manifest)
    write_sealed(manifest_file(results), manifest)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_a_manifest_is_refused_in_one_line(mistake, results):
    break_manifest(results, mistake)
    with pytest.raises(Corrupt, match=r"^.*manifest\.json (has|names|cannot be read)[^\n]*$"):
        read_manifest(results, STUDY)


def test_every_command_names_the_manifest_and_writes_nothing(place, results, run_commands):
    break_manifest(results, "an unknown reference")
    before = sorted(place.rglob("*"))
    for command, (code, printed) in run_commands().items():
        assert "manifest.json" in printed, command
        if command not in ("clean", "studies"):  # which go on with the other studies
            assert code == 2, command
            assert printed.count("\n") == 1, printed
    assert sorted(place.rglob("*")) == before


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value; of a list, whose entries resemble each other, the first's."""
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value[:1]))
    else:
        inner = []
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def test_a_study_with_any_value_in_any_place_is_read_or_refused(results, folders):
    """No error but Corrupt; of the places within a configuration, every third."""
    shutil.rmtree(folders[1])  # the files of one run suffice
    manifest = read_json(manifest_file(results))
    values = itertools.cycle([None, "x", [[1]], {"a": {"b": 1}}, 7, [], {}])
    for number, (*above, key) in enumerate(places(manifest)):
        if "config" in above and number % 3:
            continue
        node = functools.reduce(operator.getitem, above, manifest)
        original = node[key]
        node[key] = next(values)
        write_sealed(manifest_file(results), manifest)
        with contextlib.suppress(Corrupt):
            load_study(results, STUDY)
        node[key] = original
