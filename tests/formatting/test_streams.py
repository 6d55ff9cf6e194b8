"""What commands print: in any encoding, without control characters, and whether or not anybody reads it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run_fresh
from fake_studies import fabricate

from ablate.cli.main import command
from ablate.formatting.streams import echo, prepare, say

LATIN = {"PYTHONIOENCODING": "latin-1"}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
# How a shell redirects the streams of a command.
WAYS = {"stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-", "full": ">/dev/full", "both full": ">/dev/full 2>&1"}


def run_redirected(way: str, *words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command of this Python, its streams redirected by a shell."""
    shell = ["sh", "-c", f'exec "$@" {way}', "sh", sys.executable, "-m", *words]
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(shell, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)


# A text, the encoding of standard output, and what is written.
PRINTED = [
    ("rms − ln é", "utf-8", "rms − ln é\n".encode()),
    ("rms − ln é", "latin-1", b"rms ? ln \xe9\n"),
    ("not decodable: \udcff", "utf-8", b"not decodable: ?\n"),
    ("a\x1b[2Jb\u202ec\rd\x07", "utf-8", b"a\\x1b[2Jb\\u202ec\\rd\\x07\n"),
]


@pytest.mark.parametrize(("text", "encoding", "expected"), PRINTED)
def test_what_cannot_be_written_or_would_be_obeyed_is_replaced(text, encoding, expected, monkeypatch):
    raw = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, encoding=encoding))
    prepare()
    echo(text)
    assert raw.getvalue() == expected


def test_a_message_on_standard_error_moves_no_cursor(capsys):
    say("a\x1b[2Jb", "ablate clean")
    assert capsys.readouterr().err == "ablate clean: a\\x1b[2Jb\n"


def test_a_mistake_shows_what_was_typed_and_moves_no_cursor(capsys):
    assert command(["norm=\x1b[2Jx\u202ey", "ffn=a\nb"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("ablate: ") and line.isprintable() for line in lines), lines


class Broken(io.TextIOBase):
    """A stream that cannot be written."""

    def __init__(self, error: Exception):
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def test_a_full_disk_is_a_line_on_standard_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Broken(OSError(28, "No space left on device")))
    echo("words")
    assert "standard output cannot be written (No space left" in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(9, "Bad file descriptor")])
def test_streams_that_cannot_be_written_raise_nothing(error, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Broken(error))
    echo("words")
    say("words")


def test_a_command_that_shows_ends_when_its_reader_leaves(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        echo("words")


def test_status_in_an_encoding_that_lacks_our_characters(tmp_path):
    fabricate(tmp_path / "results", {"norm": ["ln", "rms"]}, labels={"rms": "b − \x1b[31m"})
    done = run_redirected("", "ablate", "status", cwd=tmp_path, **ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"fabricated" in done.stdout
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(("way", "words", "code"), [("all", [], 0), ("both full", ["none"], 2)])
def test_status_that_nobody_reads(way, words, code, tmp_path):
    fabricate(tmp_path / "results", {"norm": ["ln"]})
    done = run_redirected(WAYS[way], "ablate", "status", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (code, b"")


def statuses(folder: Path) -> list[str]:
    return [json.loads(file.read_text())["status"] for file in folder.glob("results/runs/*/*/result.json")]


NOBODY = """
import os, sys
for number in (0, 1, 2): os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
from ablate.cli.main import main
main()
"""


@pytest.mark.slow
def test_training_does_not_depend_on_who_listens(small, tmp_path):
    """With all standard streams closed, as Python begins then."""
    (tmp_path / "nobody.py").write_text(NOBODY)
    done = run_fresh("nobody", "-m", "norm=ln", *small, "seeds=1", "train.parallel=1", cwd=tmp_path)
    assert done.returncode == 0
    assert statuses(tmp_path) == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "environment"), [("", ASCII), *((way, LATIN) for way in WAYS.values())])
def test_training_and_its_exit_code_do_not_depend_on_the_encoding(way, environment, small, tmp_path):
    words = ["ablate", "-m", "norm=ln,rms", *small, "seeds=1", "train.parallel=1"]
    done = run_redirected(way, *words, cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    assert statuses(tmp_path) == ["done", "done"]
    assert b"Traceback" not in done.stderr
    if not way:
        assert b"rms ? ln" in done.stdout
