"""Command lines and study files that would not end, or end in a traceback: a line each."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ablate.cli import preview
from ablate.config.errors import PlanError, Problem
from ablate.config.groups import read_groups
from ablate.config.words import read_words
from ablate.planning.checks import user_code
from ablate.planning.plan import plan_study


def problems(*words: str, folder: Path | None = None) -> list[str]:
    """What a command line is refused for."""
    with pytest.raises(PlanError) as refused:
        plan_study((*words, "scale=tiny", "seeds=1", "dry_run=true"), str(folder) if folder else None)
    return [str(problem) for problem in refused.value.problems]


RANGES = {"range(1,1e9)": "999,999,999 values", "sort(range(1,1e9))": "999,999,999 values"}
RANGES |= {"range(1,inf)": "values without end"}
RANGES |= {"range(0,1,1e-300)": "values without end"}


@pytest.mark.parametrize("key", ["train.batch_size", "model.nothing"])
def test_a_range_is_counted_before_it_is_written_out(key: str) -> None:
    began, groups = time.process_time(), read_groups()
    for value, count in RANGES.items():
        _, found = read_words([f"{key}={value}"], groups)
        assert found == [Problem(f"{key}={value}", f"has {count}; a sweep has at most 10,000")]
    assert time.process_time() - began < 5
    settings, _ = read_words([f"{key}=range(1,4)"], groups)
    assert len(settings[key].values) == 3


def test_a_value_that_a_key_refers_to_is_of_its_kind(monkeypatch: pytest.MonkeyPatch, untried: None) -> None:
    """It was a text wherever it came from the environment, and a traceback."""
    monkeypatch.setenv("COUNT", "many")
    for key, kind in (("seeds_max", "a whole number"), ("step_equivalents", "true or false")):
        assert problems(f"{key}=${{oc.env:COUNT}}") == [f"{key}: 'many' is not {kind}"]
    monkeypatch.setenv("COUNT", "8")
    assert plan_study(("norm=ln,rms", "seeds=auto", "seeds_max=${oc.env:COUNT}", "dry_run=true")).study.looks == [5, 8]


def test_a_level_is_a_name_of_a_group_or_a_value(tmp_path: Path) -> None:
    """On the command line and in a study file."""
    for level in ("[ln]", "[ln,rms]", "{a:1}"):
        found = problems(f"norm={level},rms")
        assert any(line.startswith(f"norm={level}") and "is not a variant" in line for line in found)
    (tmp_path / "experiment").mkdir()
    norm, dim = ("norm", "rms", "a variant"), ("model.dim", 32, "a level")
    for level, (key, other, what) in {"[ln]": norm, "{ln: rms}": norm, "{a: 1}": dim, "[[1]]": dim}.items():
        (tmp_path / "experiment" / "odd.yaml").write_text(f"study: odd\nfactors: {{{key}: [{level}, {other}]}}\n")
        found = problems("+experiment=odd", folder=tmp_path)
        assert any(f"factors.{key}: {level} is not {what}" in line for line in found), found
        assert not any("\n" in line for line in found)


def test_a_key_that_is_there_is_not_suggested_for_itself() -> None:
    (line,) = problems("norm=ln,rms", "tune.key=norm._target_", "tune.values=[1,2]")
    assert line.startswith("tune.key: no such key: norm._target_; ") and "did you mean norm._target_" not in line


def test_what_never_ends_is_named_after_a_while(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is not ended for it: what is only slow is built."""
    said: list[str] = []

    def tell(text: str, **_: Any) -> None:
        said.append(text)
        (tmp_path / "said").touch()

    def slow(file: Path) -> str:
        while not file.exists():
            time.sleep(0.01)
        return "built"

    monkeypatch.setattr(user_code, "LONG", 0.0)
    monkeypatch.setattr(user_code, "print", tell, raising=False)
    assert user_code.run_in_subprocess(partial(slow, tmp_path / "said"), about="building mine.Slow") == "built"
    assert said == ["ablate: still building mine.Slow, after 0 s; Ctrl-C stops it"]


def test_the_level_whose_constructor_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_odd.py").write_text(
        "from torch import nn\nclass Norm(nn.LayerNorm):\n    def __init__(self, dim: int, at: int = 1):\n"
        "        super().__init__(dim)\n        if at == 7:\n            raise RuntimeError('not seven')\n"
        "    def forward(self, x, mask=None):\n        return super().forward(x)\n"
    )
    (tmp_path / "conf" / "norm").mkdir(parents=True)
    (tmp_path / "conf" / "norm" / "odd.yaml").write_text("# Odd.\n_target_: mine_odd.Norm\n_partial_: true\nat: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = problems("norm=odd", "norm.at=6,7,8", "user=[mine_odd]", folder=tmp_path / "conf")
    assert len(found) == 1 and found[0].startswith("norm.at=7: ") and "not seven" in found[0]


@pytest.mark.usefixtures("untried", "uncounted")
def test_a_plan_of_many_cells_is_short(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last rows, how many lie between; what is noted of many cells alike, once."""
    monkeypatch.setattr(preview, "MOST", 5)
    monkeypatch.setattr(preview, "HEAD", 3)
    monkeypatch.setattr(preview, "TAIL", 2)
    planned = plan("norm=ln,rms,scale", "ffn=mlp,gelu", "seeds=1")
    labels = [cell.label for cell in planned.manifest.cells]
    planned = replace(planned, notes=[*(f"{label}: is odd" for label in labels), "all: are even", "ln + mlp: is last"])
    lines = preview.preview(planned).splitlines()
    first = [line.split("  ")[0].removesuffix(" (reference)") for line in lines[5:11]]
    assert first == [*labels[:3], "… 1 more configuration between; --json has all", *labels[-2:]]
    notes = [f"{', '.join(labels[:4])} and 2 more: is odd", "all: are even", "ln + mlp: is last"]
    assert lines[-3:] == notes
    monkeypatch.setattr(preview, "MOST", 6)
    assert len(preview.preview(planned).splitlines()) == len(lines)


def test_a_list_of_numbers_holds_numbers() -> None:
    for key, value in (("eval.lengths", "[[]]"), ("optim.betas", "[{a:1},0.9]"), ("optim.betas", "[[1],2]")):
        found = problems(f"{key}={value}")
        assert any(line.startswith(key) and "takes a list of numbers" in line for line in found), found
