"""The installed command `ablate`: its commands and tab completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from ablate import __version__
from ablate.cli.completion import choices
from ablate.cli.main import COMMANDS, command, main

SCRIPT = "import sys\nfrom ablate.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"


@pytest.fixture
def ablate(tmp_path: Path):
    """What the script of an installation says, called from a folder of its own."""
    script, folder = tmp_path / "bin" / "ablate", tmp_path / "work"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    folder.mkdir()

    def said(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
        command = [sys.executable, str(script), *words]
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)

    said.folder = folder
    return said


def test_every_command_is_in_the_help_and_a_misspelt_one_is_named(ablate, capsys):
    shown = ablate("--help").stdout
    for name in COMMANDS:
        assert f"ablate {name}" in shown
    assert ablate("--version").stdout == f"ablate {__version__}\n"
    assert command(["statsu"]) == 2
    wrong = capsys.readouterr().err
    assert "status" in wrong and wrong.count("\n") == 1


def test_a_command_has_its_own_help(monkeypatch, capsys):
    for place in ("path", "meta_path"):
        monkeypatch.setattr(sys, place, [*getattr(sys, place)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    for name in COMMANDS:
        monkeypatch.setattr(sys, "argv", ["ablate", name, "--help"])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code and capsys.readouterr().out.startswith(f"usage: ablate {name} ")


@pytest.mark.parametrize(("line", "expected"), [("ablate norm=ln,r", "ln,rms"), ("ablate status o", "one")])
def test_a_shell_gets_the_rest_of_a_word(line, expected, ablate, tmp_path):
    (ablate.folder / "results" / "studies" / "one").mkdir(parents=True)
    (ablate.folder / "results" / "studies" / "one" / "manifest.json").write_text("{}")
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked |= {"_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:", "_ARGCOMPLETE_IFS": "\n"}
    ablate(**asked, _ARGCOMPLETE_STDOUT_FILENAME=str(tmp_path / "told"))
    assert [word.rstrip() for word in (tmp_path / "told").read_text().splitlines()] == [expected]


def test_completion_offers_commands_groups_keys_and_study_files():
    first = choices([], "", COMMANDS)
    assert {"status", "norm=", "train.steps=", "seeds=", "+experiment=", "+preset="} <= {*first}
    assert "status" not in choices(["norm=rms"], "", COMMANDS)
    assert "+experiment=glu_variants" in choices([], "+experiment=", COMMANDS)
    assert "norm=ln,ln" not in choices([], "norm=ln,", COMMANDS)
