"""Texts of a study that act where they are shown, rather than being seen, act in no output of `analyse`."""

import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from fake_studies import TASK, fabricate
from matplotlib.figure import Figure

from ablate.formatting.streams import exit_with
from analysis.cli.main import main

ACTING = "\x1b]0;x\x07 \x1b[2J \u2028 \u2029 \x85 \u202e \u2066 \x00"
BRACES = "{" * 500
LATEX = "\\input{/etc/passwd} $\\write18{ls}$ %"


def test_what_acts_is_spelled_out_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))  # a command replaces them
    nasty = f"{ACTING}{LATEX}{BRACES}<script>"
    entry = {"ENTRYTYPE": "misc", "title": nasty, "author": nasty, "year": nasty, "note": nasty}
    claim = {"less": [{"tag": nasty}, {"tag": "plain"}], "metric": "test/loss"}
    name = fabricate(
        tmp_path,
        {"norm": ["ln", "rms"], "tag": ["plain", nasty]},
        range(3),
        status=lambda levels, seed: "failed" if seed == 2 and levels["norm"] == "rms" else "done",
        question=nasty,
        command=nasty,
        remarks=[nasty],
        created=nasty,
        tasks={"f0": TASK | {"title": nasty, "name": nasty}},
        papers={"norm=rms": {"x": entry}},
        claims={nasty: {"claim": claim, "written": nasty, "registered": True, "earlier": []}},
    )
    out = tmp_path / "out"
    save = lambda drawn, file, **_: hasattr(file, "write") and file.write(b"a picture, which is no text")  # noqa: E731
    picture = patch.object(Figure, "savefig", save)
    with picture, pytest.raises(SystemExit) as end:
        exit_with(lambda: main(["--results-dir", str(tmp_path), name, "--to", str(out)]))
    assert not end.value.code
    texts = dict(zip(("out", "err"), capsys.readouterr(), strict=True))
    kinds = (".md", ".html", ".tex", ".bib", ".txt")  # CSV files are data
    texts |= {file.name: file.read_text(encoding="utf-8") for file in out.iterdir() if file.suffix in kinds}
    assert {"report.html", "report.md", "methods.tex", "macros.tex", "references.bib"} <= texts.keys()
    for where, text in texts.items():
        left = {character for character in ACTING if character in text} - {" ", "x", "0", "2", "J", "]", "[", ";"}
        assert not left, f"{where} holds {left!a}"
    for where in ("macros.tex", "methods.tex", "claims.tex", "effects.tex"):
        lines = (line.partition("%")[0] for line in texts[where].replace("\\%", "").splitlines())
        assert not any("\\input{" in line or "\\write18" in line for line in lines), where
    assert "<script>alert" not in texts["report.html"] and "<script>|" not in texts["report.html"]
