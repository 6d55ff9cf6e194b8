"""The command line end to end: its commands, what a sweep leaves on disk, what the same does again."""

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import SHAPE, STEPS, run_fresh
from fake_studies import draw_effects_alone
from one_run import sweep_here

from ablate import __version__
from ablate.cli.main import COMMANDS, command, help_text, main
from ablate.config.groups import description, groups
from ablate.config.schema import KEYS, SECTIONS
from ablate.runs.folder import Run
from ablate.runs.manifest import newest_study, read_manifest
from ablate.runs.records import Manifest
from analysis.cli.main import main as analyse

SWEEP = ["-m", "norm=ln,rms", "seeds=2"]


@dataclasses.dataclass
class Swept:
    """A folder in which a sweep was carried out by processes, the words beside it, and how it ended."""

    folder: Path
    small: list[str]
    done: subprocess.CompletedProcess[str]

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.results, newest_study(self.results))


@pytest.fixture(scope="module")
def swept(text, tmp_path_factory) -> Swept:
    folder = tmp_path_factory.mktemp("swept")
    small = [*SHAPE, *STEPS, "data=text", f"data.path={text}", f"results_dir={folder / 'results'}"]
    return Swept(folder, small, run_fresh("ablate", *SWEEP, *small, cwd=folder))


def test_a_sweep_ends_with_its_effects_and_writes_its_results_alone(swept):
    assert swept.done.returncode == 0, swept.done.stderr
    assert "rms is not told apart from ln" in swept.done.stdout
    assert [path.name for path in swept.folder.iterdir()] == ["results"]
    assert swept.manifest.factors == {"norm": ["ln", "rms"]}
    assert len(swept.manifest.runs) == 4


def test_each_run_of_a_sweep_has_its_result_metrics_and_weights(swept):
    for planned in swept.manifest.runs:
        run = Run(swept.results, planned.path)
        result = run.result()
        rows, _ = run.metrics()
        assert result.status == "done"
        assert [row["step"] for row in rows] == [0, 2, 3, 4, 6]
        assert rows[-1]["tokens"] == 6 * 4 * 16
        assert rows[-1]["test/loss"] == result.final["test/loss"]
        assert run.weights_file.exists()
        assert not run.checkpoint_file.exists()


def test_a_sweep_is_analysed(swept):
    draw_effects_alone(swept.results, swept.manifest.study)
    assert analyse(["--results-dir", str(swept.results)]) == 0
    figures = swept.results / "figures" / swept.manifest.study
    assert {path.suffix for path in figures.iterdir()} >= {".png", ".pdf", ".csv", ".md"}


def result_stamps(swept: Swept) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in swept.results.glob("runs/*/*/result.json")}


def test_the_same_command_trains_nothing_and_says_the_same(swept, capsys, untried):
    before = result_stamps(swept)
    assert command([*SWEEP, *swept.small]) == 0
    table = swept.done.stdout[swept.done.stdout.index("test/loss, nats") : swept.done.stdout.index("next: ")]
    assert table in capsys.readouterr().out
    assert result_stamps(swept) == before


def test_one_more_seed_trains_that_alone(swept, untried):
    before = result_stamps(swept)
    assert sweep_here("norm=ln,rms", "seeds=3", *swept.small) == 0
    after = result_stamps(swept)
    assert len(after) == len(before) + 2
    assert before.items() <= after.items()


def test_a_dry_run_shows_the_plan_and_writes_nothing(small, tmp_path, monkeypatch, capsys, untried):
    monkeypatch.chdir(tmp_path)
    assert command([*SWEEP, *small, "dry_run=true"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 configurations × 2 seeds = 4 runs, 4 to do"
    assert lines[5].startswith("ln (reference) ")
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_variant(capsys):
    assert command(["help"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n") < 100
    for group, variants in groups().items():
        assert f"\n  {group} " in shown
        assert all(variant in shown for variant in variants), group


@pytest.mark.parametrize("group", groups())
def test_help_of_a_group_says_what_each_variant_is(group, capsys):
    assert command(["--help", group]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{group}\n")
    for variant, file in groups()[group].items():
        assert description(file), f"{file} does not say what it is"
        assert re.search(rf"^  {variant} +{re.escape(description(file))}$", shown, re.MULTILINE)


def test_help_has_the_variants_of_ones_own_folder(tmp_path, capsys):
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "mine.yaml").write_text("# Mine, a norm.\n_target_: mine.Norm\n")
    assert command(["--help", "norm", "--config-dir", str(tmp_path)]) == 0
    assert re.search("^  mine +Mine, a norm.$", capsys.readouterr().out, re.MULTILINE)


HELP = [("fnn", "did you mean ffn"), ("frob", "there are attention")]


@pytest.mark.parametrize(("word", "message"), HELP)
def test_help_on_what_is_no_group_says_what_to_write(word, message, capsys):
    assert command(["help", word]) == 2
    assert message in capsys.readouterr().err


def test_help_has_every_key_and_command():
    keys = {*KEYS} - {*SECTIONS} - {*groups()}
    for name, section in SECTIONS.items():
        keys |= {f"{name}.{field.name}" for field in dataclasses.fields(section) if field.name != "_target_"}
    text = help_text(None)
    missing = [key for key in sorted(keys) if not re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", text)]
    assert missing == []
    assert all(f"ablate {name}" in text for name in COMMANDS)


@pytest.mark.parametrize("words", [[], ["-m"], ["--json"]])
def test_without_words_there_is_help_and_nothing_is_trained(words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert command(words) == 0
    assert "usage: ablate [-m] [group=variant" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_configuration_as_json_has_every_section(capfd):
    assert command(["--cfg", "job", "norm=rms", "--json"]) == 0
    configuration = json.loads(capfd.readouterr().out)["result"]
    assert configuration["norm"]["_target_"] == "ablate.model.norm.RMSNorm"
    assert configuration["train"]["steps"] > 0


def test_of_a_sweep_the_first_configuration_is_shown(capsys):
    assert command(["-m", "norm=rms,ln", "ffn=mlp,glu", "--cfg", "job"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# rms + mlp, the first of 4 configurations\n")
    assert yaml.safe_load(shown)["norm"]["_target_"] == "ablate.model.norm.RMSNorm"


def test_the_configuration_of_hydra_has_its_launcher(capsys):
    assert command(["--cfg", "hydra", "hydra/launcher=basic", "hydra.job.name=mine"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["hydra"]["job"]["name"] == "mine"


def test_the_version(capsys):
    assert command(["--version"]) == 0
    assert capsys.readouterr().out == f"ablate {__version__}\n"


# Words that are no command, and what their message says to write.
NO_COMMANDS = {
    "statsu": "did you mean status?",
    "train": "to train write ablate -m norm=ln,rms",
    "plan": "to see a plan write ablate -m norm=ln,rms dry_run=true",
    "dry_run": "write dry_run=true",
    "frobnicate": "see ablate --help",
    "--lr 3": "write optim.lr=VALUE",
}


@pytest.mark.parametrize("words", NO_COMMANDS)
def test_a_word_that_is_no_command_is_answered_by_what_to_write(words, capsys):
    assert command(words.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ablate: {re.split('[ =]', words)[0]}: no such ")
    assert NO_COMMANDS[words] in line


@pytest.fixture
def import_path(monkeypatch) -> Iterator[None]:
    """The import path is restored after a command has left the current folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    yield


@pytest.mark.usefixtures("import_path")
@pytest.mark.parametrize(("word", "name"), [*((name, name) for name in COMMANDS), ("analyze", "analyse")])
def test_a_command_has_its_own_help(word, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ablate", word, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out.startswith(f"usage: ablate {name} ")
