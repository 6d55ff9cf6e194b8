"""Words that are gone: whoever still writes one is told in one line what to write instead, and nothing is written.

A new entry of `REMOVED` needs a line in `WORDS` only if neither `KEY=1` nor the entry itself reaches its message.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import latest
from fake_studies import fabricate

from ablate.cli.main import main
from ablate.config.errors import Refused
from ablate.config.removed import REMOVED
from ablate.runs.study import load_study
from analysis import plot

# The words of a command that gets an entry's message, where they are others than those of `words_of`.
WORDS: dict[str, str] = {
    "--wandb FOLDER": "analyse --wandb .",
    "attention.key_bias": "+attention.key_bias=true",
    "attention.out_bias": "+attention.out_bias=false",
    "attention.qk_norm_after": "attention=qk_norm +attention.qk_norm_after=rotation",
    "attention.query_bias": "+attention.query_bias=true",
    "attention.value_bias": "+attention.value_bias=true",
    "ffn.gates=inputs": "ffn=moe ffn.gates=inputs",
    "ffn.shared_gate": "ffn=moe ffn.shared_gate=sigmoid",
    "ffn=relu": "ffn=mlp,relu",
    "model.transform_bias": "model=bert data=mlm +model.transform_bias=false",
    "position.cut": "+position.cut=true",
    "position.offset": "position=sinusoidal +position.offset=2",
    "position.scale": "position=alibi +position.scale=0.5",
    "preset=qwen2": "+preset=qwen2,llama",
    "residual.first_norm": "+residual.first_norm=false",
}


def words_of(entry: str) -> list[str]:
    """The words of a command that uses an entry's key, value, variant or command."""
    if entry in WORDS:
        return WORDS[entry].split()
    if entry.startswith("ablate "):
        return entry.split()[1:]
    if entry.startswith("figure: "):
        return ["+experiment=mine"]
    if entry.startswith("preset="):
        return [f"+{entry}"]
    if "=" in entry:
        return [entry]
    return [f"{entry}=1"]


def folder_with_study_file(folder: Path, entry: str) -> Path:
    """A folder for `--config-dir` with a study file that has a figure."""
    file = folder / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    content = {"factors": {"norm": ["ln", "rms"]}, "figure": entry.removeprefix("figure: ")}
    file.write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.parametrize("entry", REMOVED)
def test_a_command_with_a_word_that_is_gone_is_told_what_to_write(
    entry: str, small: list[str], tmp_path_factory: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    words = words_of(entry)
    if any("=" in word for word in words):
        words = latest(*small, *words)
    if entry.startswith("figure: "):
        words += ["--config-dir", str(folder_with_study_file(tmp_path_factory.mktemp("mine"), entry))]
    for place in ("path", "meta_path"):
        monkeypatch.setattr(sys, place, [*getattr(sys, place)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setattr(sys, "argv", ["ablate", *words])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if REMOVED[entry] in line]
    assert len(lines) == 1, printed.err
    assert list(tmp_path.iterdir()) == [], "something was written"


FIGURES = [word.removeprefix("figure: ") for word in REMOVED if word.startswith("figure: ")]


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_that_is_gone_is_refused_by_plot_and_by_figures_yaml(tmp_path: Path, figure: str) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    with pytest.raises(Refused, match=REMOVED[f"figure: {figure}"]):
        plot(study, figure, tmp_path)
    (tmp_path / "figures.yaml").write_text(f"subset: {{figures: [{figure}]}}\n")
    with pytest.raises(Refused, match=REMOVED[f"figure: {figure}"]):
        plot(study, "effects", tmp_path)


def test_a_study_file_with_a_key_that_is_gone_is_told_what_to_write(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    content = {"factors": {"norm": ["ln", "rms"]}, "reference": {"norm": "rms"}}
    (tmp_path / "experiment" / "mine.yaml").write_text(yaml.safe_dump(content))
    (line,) = refused("+experiment=mine", config_dir=str(tmp_path))
    assert line.endswith(f"mine.yaml: reference: {REMOVED['reference']}")


def test_a_key_that_is_gone_is_named_though_its_value_cannot_be_read(refused: Any) -> None:
    assert refused("norm=ln,rms", "reference={norm:group(4)}") == [
        f"reference={{norm:group(4)}}: {REMOVED['reference']}"
    ]
