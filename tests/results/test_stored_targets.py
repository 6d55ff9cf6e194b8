"""Where what a stored configuration names stands now."""

from pathlib import Path
from typing import Any

import pytest

from ablate.config.schema import Config, typed
from ablate.results.stored_targets import by_own_names, found_anew, is_foreign

STORED: dict[str, Any] = {"norm": {"_target_": "mine.norms.Half"}, "ffn": [{"_target_": "ablate.model.ffn.MLP"}]}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that no other test has, with one class, and one that two modules have."""
    name = f"parts_{tmp_path.name}".replace("-", "_")
    (tmp_path / name / "deep").mkdir(parents=True)
    (tmp_path / name / "deep" / "layers.py").write_text("class Half:\n    pass\nclass Twice:\n    pass\n")
    (tmp_path / name / "other.py").write_text("class Twice:\n    pass\n")
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('nothing is imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def target(config: Config) -> str:
    return str(config.norm["_target_"])


def test_a_users_class_is_found_by_its_name_where_it_is_the_only_one(package: str) -> None:
    now = f"{package}.deep.layers.Half"
    for old in (f"{package}.norms.Half", "gone.norms.Half", now):
        found = found_anew(typed(STORED | {"norm": {"_target_": old}}), [package])
        assert target(found) == now and found.ffn == STORED["ffn"]
    for old in (f"{package}.norms.Twice", f"{package}.norms.None_", "os.system", "not a name"):
        assert target(found_anew(typed({"norm": {"_target_": old}}), [package])) == old
    assert found_anew(typed(STORED), []) == typed(STORED), "nothing that nobody named"
    assert found_anew(typed(STORED), [f"{package}.other"]) == typed(STORED), "the class is not in what was named"


def test_parts_are_named_by_their_own_names() -> None:
    assert by_own_names(STORED) == {"norm": {"_target_": "Half"}, "ffn": [{"_target_": "MLP"}]}
    assert is_foreign(STORED) and not is_foreign({"ffn": STORED["ffn"]})
