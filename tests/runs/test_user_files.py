"""A run's key holds the content of user code; ways to change it are in `ways_to_change_code`."""

import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pytest
from reference_config import CONFIG
from ways_to_change_code import WAYS, native_module, try_all

from ablate.config.schema import Config, typed
from ablate.runs import user_files
from ablate.runs.key import code_of, run_key
from ablate.runs.records import UserCode
from ablate.runs.user_files import package_files, record_user_code, refuse_changed, refuse_unplanned


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """What came of each way, by its name."""
    forked = multiprocessing.get_context("fork")
    receiver, sender = forked.Pipe(duplex=False)
    process = forked.Process(target=lambda: sender.send(try_all()))
    process.start()
    sender.close()  # or nobody would notice that the process has ended without a word
    found: dict[str, Any] = receiver.recv()
    process.join()
    return found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_change_of_user_code_is_another_key_or_is_listed_as_not_seen(way, results):
    if "{native}" in way.file and not native_module():
        pytest.skip("this Python has no native modules in files")
    before, after = results[way.name]["values"]
    assert (before == after) == way.same_value
    assert results[way.name]["is_seen"] == way.is_seen


FILES = {
    "mine/__init__.py": "",
    "mine/norms.py": "class Half: pass",
    "mine/data/table.json": "[1]",
    "mine/.hidden": "x",
    "mine/.git/config": "x",
    "mine/__pycache__/norms.pyc": "x",
    "mine/old.pyc": "x",
    "mine/out/runs/s0/result.json": "{}",
    "mine/out/studies/s/manifest.json": "{}",
}


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    """The folder of a package and of a helper beside it."""
    for name, text in (FILES | {"beside_mine.py": "X = 1\n"}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mine", "mine.norms", "beside_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_hidden_files_bytecode_and_results_in_a_package_do_not_count(mine):
    assert sorted(package_files(["mine.norms"])) == ["mine/__init__.py", "mine/data/table.json", "mine/norms.py"]


def test_a_package_counts_where_it_stands(mine, monkeypatch):
    first = user_files.digests_of(package_files(["mine"]))
    (mine / "other").mkdir()
    (mine / "mine").rename(mine / "other" / "mine")
    monkeypatch.syspath_prepend(str(mine / "other"))
    assert user_files.digests_of(package_files(["mine"])) == first


def foreign(target: str = "mine.norms.Half") -> Config:
    return typed(CONFIG | {"norm": {"_target_": target, "_partial_": True}})


def user_code(**parts: Any) -> UserCode:
    return UserCode(**({"packages": {}, "modules": {}, "ablate": [], "versions": {}} | parts))


@pytest.mark.parametrize(
    ("name", "needed", "not_needed"),
    [
        ("ablate.model.norm.ScaleNorm", "ablate.model.norm.ScaleNorm", "ablate.model.norm.GroupNorm"),
        ("ablate.model.norm.ScaleNorm.forward", "ablate.model.norm.ScaleNorm", "ablate.model.norm.GroupNorm"),
        ("ablate.model.norm", "ablate.model.norm.GroupNorm", "ablate.model.ffn.MoE"),
        ("ablate.model.norm.*", "ablate.model.norm.GroupNorm", "ablate.model.ffn.MoE"),
        ("ablate.model", "ablate.model.ffn.MoE", "ablate.data.dates.Dates"),
    ],
)
def test_what_user_code_imports_of_ablate_counts(name, needed, not_needed):
    definitions = code_of(foreign(), user_code(ablate=[name])).definitions
    assert needed in definitions and not_needed not in definitions
    assert needed not in code_of(foreign(), user_code()).definitions


@pytest.mark.parametrize(
    "other",
    [{"packages": {"a": "1"}}, {"modules": {"a": "1"}}, {"versions": {"a": "1"}}, {"ablate": ["ablate.model.norm"]}],
)
def test_every_part_of_user_code_is_in_the_key(other):
    assert run_key(foreign(), 0, "f", user_code(**other)) != run_key(foreign(), 0, "f", user_code())


def test_two_classes_of_one_bare_name_are_two():
    one, two = (run_key(foreign(target), 0, "f", user_code()) for target in ("mine.one.Half", "mine.two.Half"))
    assert one != two


def test_a_module_that_training_alone_imports_is_refused_by_name(mine):
    planned = record_user_code(["mine"])
    before = user_files.local_modules()
    __import__("mine.norms")
    refuse_unplanned(planned, ["mine"], before)
    __import__("beside_mine")
    refuse_unplanned(planned, ["mine"], user_files.local_modules())
    with pytest.raises(
        RuntimeError, match="imported beside_mine in training, not in the plan, so it is in no key; imp"
    ):
        refuse_unplanned(planned, ["mine"], before)
    refuse_unplanned(record_user_code(["mine", "beside_mine"]), ["mine", "beside_mine"], before)


@pytest.mark.parametrize(("file", "text"), [("mine/norms.py", "X = 2"), ("mine/new.py", ""), ("mine/norms.py", None)])
def test_a_package_that_changed_since_the_plan_is_refused(file, text, mine):
    planned = record_user_code(["mine"])
    refuse_changed(planned, ["mine"])
    (mine / file).write_text(text) if text is not None else (mine / file).unlink()
    with pytest.raises(RuntimeError, match="changed after the plan was made; give the command again"):
        refuse_changed(planned, ["mine"])


def test_a_helper_that_changed_since_the_plan_is_refused(mine):
    before = user_files.local_modules()
    __import__("beside_mine")
    planned = record_user_code(["mine"])
    (mine / "beside_mine.py").write_text("X = 2\n")
    with pytest.raises(RuntimeError, match="changed after the plan was made; give the command again"):
        refuse_unplanned(planned, ["mine"], before)
