"""Texts of a study that act where they are shown, rather than being seen, act in no output of `analyse`."""

import sys
from pathlib import Path

from fake_studies import TASK, fabricate
from matplotlib.figure import Figure

from ablate.formatting.streams import prepare
from analysis.cli.main import main

ACTING = "\x1b\x07\u2028\u2029\x85\u202e\u2066\x00"
NASTY = f"\x1b]0;x\x07 \x1b[2J {ACTING} \\input{{/etc/passwd}} $\\write18{{ls}}$ %{'{' * 500}<script>"
TEXTS = (".md", ".html", ".tex", ".bib", ".txt")  # CSV files are data


def nasty_study(results: Path) -> str:
    """A study all of whose texts are nasty."""
    entry = {"ENTRYTYPE": "misc", "title": NASTY, "author": NASTY, "year": NASTY, "note": NASTY}
    claim = {"less": [{"tag": NASTY}, {"tag": "plain"}], "metric": "test/loss"}

    def ending(levels: dict[str, str], seed: int) -> str:
        return "failed" if (levels["norm"], seed) == ("rms", 2) else "done"

    return fabricate(
        results,
        {"norm": ["ln", "rms"], "tag": ["plain", NASTY]},
        status=ending,
        question=NASTY,
        command=NASTY,
        remarks=[NASTY],
        created=NASTY,
        tasks={"f0": TASK | {"title": NASTY, "name": NASTY}},
        papers={"norm=rms": {"x": entry}},
        claims={NASTY: {"claim": claim, "written": NASTY, "registered": True, "earlier": []}},
    )


def save_nothing(figure: Figure, file: object, **_: object) -> None:
    """In place of drawing, which takes seconds."""
    if hasattr(file, "write"):
        file.write(b"a picture, which is no text")


def test_what_acts_is_spelled_out_everywhere(tmp_path, capsys, monkeypatch):
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))  # `prepare` replaces them
    monkeypatch.setattr(Figure, "savefig", save_nothing)
    out = tmp_path / "out"
    prepare()
    assert main(["--results-dir", str(tmp_path), nasty_study(tmp_path), "--to", str(out)]) == 0
    printed = capsys.readouterr()
    texts = {"out": printed.out, "err": printed.err}
    for file in out.iterdir():
        if file.suffix in TEXTS:
            texts[file.name] = file.read_text(encoding="utf-8")
    assert {"report.html", "report.md", "methods.tex", "references.bib"} <= texts.keys()
    for name, text in texts.items():
        assert not set(text) & set(ACTING), name
    for name in ("methods.tex", "claims.tex", "effects.tex"):
        for line in texts[name].replace("\\%", "").splitlines():
            code = line.partition("%")[0]
            assert "\\input{" not in code and "\\write18" not in code, (name, line)
    assert "{<script>" not in texts["report.html"]
