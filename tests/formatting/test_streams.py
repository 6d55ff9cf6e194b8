"""What commands print: in any encoding, without control characters, and whether or not anybody reads it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_module
from fake_studies import fabricate

from ablate.cli.main import command
from ablate.formatting.streams import echo, prepare, say

LATIN = {"PYTHONIOENCODING": "latin-1"}
OLD = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
WAYS = {"stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-", "full": ">/dev/full", "both full": ">/dev/full 2>&1"}


def under(way: str, *words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command of this Python, its streams redirected by a shell."""
    command = ["sh", "-c", f'exec "$@" {way}', "sh", sys.executable, "-m", *words]
    given = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=cwd, env=given, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)


def printed(*texts: str, encoding: str = "utf-8") -> bytes:
    """What `echo` writes to a standard output of some encoding."""
    raw = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, io.TextIOWrapper(raw, encoding=encoding))
        prepare()
        for text in texts:
            echo(text)
        return raw.getvalue()


def test_what_an_encoding_lacks_is_a_question_mark() -> None:
    assert printed("rms − ln é", encoding="utf-8") == "rms − ln é\n".encode()
    assert printed("rms − ln é", encoding="latin-1") == b"rms ? ln \xe9\n"
    assert printed("a name that cannot be decoded: \udcff") == b"a name that cannot be decoded: ?\n"


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    assert printed("a\x1b[2Jb\u202ec\rd\x07") == b"a\\x1b[2Jb\\u202ec\\rd\\x07\n"


def test_a_message_on_standard_error_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[2Jb", "ablate clean")
    assert capsys.readouterr().err == "ablate clean: a\\x1b[2Jb\n"


class Broken(io.TextIOBase):
    def __init__(self, error: Exception):
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(9, "Bad")])
def test_a_stream_that_cannot_be_written_raises_nothing(error: OSError, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(error))
    echo("words")
    assert ("standard output cannot be written (No space left" in capsys.readouterr().err) == (error.errno == 28)
    monkeypatch.setattr(sys, "stderr", Broken(error))
    say("words")


def test_a_command_that_shows_ends_when_its_reader_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        echo("words")


def test_a_reader_that_leaves_makes_no_noise(tmp_path: Path) -> None:
    fabricate(tmp_path / "results", {"norm": ["ln"]})
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "ablate", "status"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=writing, stderr=-1)
    os.close(writing)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_status_in_an_encoding_that_lacks_our_characters(tmp_path: Path) -> None:
    fabricate(tmp_path / "results", {"norm": ["ln", "rms"]}, labels={"rms": "b − \x1b[31m"})
    done = under("", "ablate", "status", cwd=tmp_path, **OLD)
    assert done.returncode == 0 and b"fabricated" in done.stdout and not done.stderr, done.stderr
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(("way", "words", "code"), [("all", [], 0), ("both full", [], 0), ("both full", ["none"], 2)])
def test_status_that_nobody_reads(way: str, words: list[str], code: int, tmp_path: Path) -> None:
    fabricate(tmp_path / "results", {"norm": ["ln"]})
    done = under(WAYS[way], "ablate", "status", *words, cwd=tmp_path)
    assert done.returncode == code and b"Traceback" not in done.stderr and b"Exception" not in done.stderr, done.stderr


NOBODY = """
import os, sys
for number in (0, 1, 2): os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from ablate.cli.main import main
main()
"""


@pytest.mark.slow
def test_training_does_not_depend_on_who_listens(small: list[str], tmp_path: Path) -> None:
    """With all standard streams closed, as Python begins then."""
    (tmp_path / "nobody.py").write_text(NOBODY)
    done = run_module("nobody", "-m", "norm=ln", *small, "seeds=1", "train.parallel=1", cwd=tmp_path)
    assert done.returncode == 0 and statuses(tmp_path) == ["done"]


def statuses(folder: Path) -> list[str]:
    return [json.loads(file.read_text())["status"] for file in folder.glob("results/runs/*/*/result.json")]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "environment"), [("", OLD), *((way, LATIN) for way in WAYS.values())])
def test_training_and_its_exit_code_do_not_depend_on_the_encoding(
    way: str, environment: dict[str, str], small: list[str], tmp_path: Path
) -> None:
    words = ["ablate", "-m", "norm=ln,rms", *small, "seeds=1", "train.parallel=1"]
    done = under(way, *words, cwd=tmp_path, **environment)
    assert statuses(tmp_path) == ["done"] * 2 and done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr and (b"rms ? ln" in done.stdout or way)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["", *WAYS.values()])
def test_the_analysis_writes_its_files_whoever_listens(way: str, tmp_path: Path) -> None:
    fabricate(tmp_path / "results", {"norm": ["ln", "rms"]})
    done = under(way, "analysis", cwd=tmp_path, **LATIN)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    assert (tmp_path / "results" / "figures" / "fabricated" / "report.html").exists()


def test_a_mistake_shows_what_was_typed_and_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["norm=\x1b[2Jx\u202ey", "ffn=a\nb"]) == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and "\u202e" not in shown
    assert shown and all(line.startswith("ablate: ") for line in shown.splitlines()), shown
