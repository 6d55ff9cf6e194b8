"""names.yaml of a user's folder: each key has something behind it."""

from pathlib import Path

import pytest

from ablate.config.command import read_command
from ablate.config.errors import PlanError
from ablate.config.groups import read_groups, unused_names

FLOOR = "# MaxNorm: x / max|x|.\n_target_: mine.MaxNorm\nfloor: 1.0e-5\n"


def problems(folder: Path, names: str) -> list[str]:
    """What is wrong with a names.yaml beside a norm with a setting `floor`."""
    (folder / "norm").mkdir()
    (folder / "norm" / "max.yaml").write_text(FLOOR)
    (folder / "names.yaml").write_text(names)
    return [problem.message for problem in unused_names(read_groups(str(folder)))]


@pytest.mark.parametrize("key", ["norm.floor", "norm.eps", "model.dim", "norm=max", "norm=rms", "last", "test/chrf"])
def test_settings_variants_and_metrics_may_be_named(key, tmp_path):
    assert problems(tmp_path, f"{key}: a name\n") == []


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("norm.flor", "did you mean norm.floor?"),
        ("nrom.eps", "did you mean norm.eps?"),
        ("norm=mx", "did you mean norm=max?"),
        ("max.width", "leave it out"),
    ],
)
def test_a_name_with_nothing_behind_it_is_refused(key, hint, tmp_path):
    assert problems(tmp_path, f"{key}: a name\n") == [f"names {key}, which no file of the folder has; {hint}"]


@pytest.mark.parametrize("name", ["names.yml", "norm/max.yml", "norm/2d.yaml", "norm/a+b.yaml"])
def test_a_file_whose_name_is_not_read_is_refused(name, tmp_path):
    (tmp_path / "norm").mkdir()
    (tmp_path / name).write_text(FLOOR)
    with pytest.raises(PlanError, match=r"is not read; name it \w+\.yaml|must have a name of letters"):
        read_command([], str(tmp_path))


def test_whoever_forgets_the_folder_of_a_variant_or_a_study_is_reminded():
    _, problems = read_command(["norm=zzz", "+experiment=zzz"], None)
    assert [problem.message.rpartition("; ")[2] for problem in problems] == [
        "one of your own is DIR/experiment/zzz.yaml, with --config-dir DIR",
        "one of your own is DIR/norm/zzz.yaml, with --config-dir DIR",
    ]
