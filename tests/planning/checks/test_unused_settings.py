"""Settings that nothing reads: told from the code of components, and by a run that notes what it reads."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import latest

from ablate.config.components import RESERVED, resolve
from ablate.config.groups import groups
from ablate.config.schema import COMPONENTS, SECTIONS
from ablate.planning.checks.unused_settings import attributes_read, unread_arguments
from ablate.planning.plan import check_study
from ablate.results.run import Run
from ablate.training.trainer import Trainer

CODE = """
import dataclasses
from torch import nn


class Stored(nn.Module):
    def __init__(self, dim: int, read: float, unread: float, both: float, only: float):
        super().__init__()
        self.read, self.unread = read, unread
        self.kept: float = only
        if both > 0:
            self.both = both

    def forward(self, x):
        return x * self.read


class Passed(Stored):
    def __init__(self, dim: int, base: float, lost: float):
        super().__init__(dim, base, 1.0, 1.0, 1.0)


class Named(nn.Module):
    def __init__(self, name: float):
        self.named = name

    def forward(self, x):
        return x * getattr(self, "named")


class All(nn.Module):
    def __init__(self, one: float):
        self.__dict__.update(locals())


@dataclasses.dataclass
class Data(nn.Module):
    one: float


def function(one: float, two: float):
    return one
"""
UNREAD = {
    "Stored": ["unread", "only"],
    "Passed": ["lost"],
    "Named": [],
    "All": [],
    "Data": [],
    "function": ["two"],
}


@pytest.mark.parametrize("name", UNREAD)
def test_an_argument_that_nothing_reads(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dials_of_mine.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("dials_of_mine", None)
    target = resolve("norm", f"dials_of_mine.{name}", ["dials_of_mine"])
    keys = ("read", "unread", "both", "only", "base", "lost", "name", "one", "two")
    assert unread_arguments(target, keys) == UNREAD[name]


def test_every_setting_of_every_variant_is_read() -> None:
    count = 0
    for group in (*COMPONENTS, "data"):
        for file in groups()[group].values():
            node = yaml.safe_load(file.read_text())
            keys = [key for key in node if key not in RESERVED]
            assert unread_arguments(resolve(group, node["_target_"]), keys) == [], file
            count += len(keys)
    assert count > 50


def noting(section: Any, read: set[str]) -> Any:
    """A section of a configuration that notes which of its keys are read."""

    class Noting(type(section)):  # type: ignore[misc]
        def __getattribute__(self, key: str) -> Any:
            read.add(key)
            return super().__getattribute__(key)

    return Noting(**vars(section))


# What the plan, the launch, and the tests of longer sequences read, before a run or after it.
PLANNED = {"train": {"parallel"}, "eval": {"lengths"}}


def test_every_key_of_the_frame_is_read_by_a_run(small: list[str], tmp_path: Path) -> None:
    config = check_study(latest(*small, "train.diagnostics=true"), None).cells.checked[0].config
    read: dict[str, set[str]] = {name: set() for name in ("model", "train", "optim", "eval", "seed")}
    noted = {name: noting(getattr(config, name), keys) for name, keys in read.items()}
    (tmp_path / "run").mkdir()
    run = Run(tmp_path, "run")
    run.folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(run, dataclasses.replace(config, **noted), 0)
    trainer.train(lambda: False)
    # The model's other keys go into its shape: one that no component reads there is read by nothing.
    read["model"] |= attributes_read(("ablate.model.transformer",))
    for name, keys in read.items():
        fields = {field.name for field in dataclasses.fields(SECTIONS[name])} - PLANNED.get(name, set())
        assert fields <= keys, f"{name}: {fields - keys} are read by nothing"
