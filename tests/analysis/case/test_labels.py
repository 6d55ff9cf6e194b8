"""Labels of figures.yaml stand wherever people read, escaped for what they stand in, and change nothing else."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_studies import fabricate

from ablate.results.atomic import write_json
from ablate.results.manifest import study_folder
from analysis.cli.main import main

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"], "optim.lr": [0.001, 0.01]}
CLAIM = {"less": [{"ffn": "glu"}, {"ffn": "mlp"}], "metric": "test/loss", "at": {"norm": "rms"}}
ENTRY = {"written": "2026-01-01T00:00:00+00:00", "registered": True, "earlier": [], "claim": CLAIM}
LOST = {"norm": "rms", "ffn": "glu", "optim.lr": 0.01}
LABELS = {"ln": "L_n <b>norm</b>", "rms": "50 % of $x$", "glu": "G&L#U", "ffn": "{FFN}^2", "optim.lr": "rate"}


def analysed(
    results: Path, labels: dict[str, str], factors: dict[str, list[Any]] = GRID, **manifest: Any
) -> tuple[Path, str]:
    """The folder of a whole analysis with these labels, of the same runs every time, and what was printed."""
    lost = lambda levels, seed: "diverged" if levels == LOST and seed == 1 else "done"  # noqa: E731
    papers = {"ffn=glu": {"dauphin2016language": {"author": "Dauphin, Yann and others", "year": "2016"}}}
    manifest |= {"claims": {"gated": ENTRY}, "papers": papers}
    fabricate(results, factors, seeds=range(5), status=lost, **manifest)
    folder, said = results / "figures" / "fabricated", io.StringIO()
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text(json.dumps({"subset": {"figures": ["seeds"]}, "labels": labels}))
    with contextlib.redirect_stdout(said):
        assert main(["fabricated", "--results-dir", str(results)]) == 0
    return folder, said.getvalue()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return analysed(tmp_path_factory.mktemp("plain"), {})


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return analysed(tmp_path_factory.mktemp("labelled"), LABELS)


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text()


def test_machines_read_the_names_as_they_are(plain: tuple[Path, str], labelled: tuple[Path, str]) -> None:
    names = sorted(file.name for file in plain[0].glob("*.csv"))
    assert {"runs.csv", "cells.csv", "effects.csv", "claims.csv"} <= set(names)
    for name in [*names, "references.bib"]:
        assert read(plain[0], name) == read(labelled[0], name), name
    commands = [re.findall(r"\\newcommand.*", read(folder, "macros.tex")) for folder, _ in (plain, labelled)]
    assert commands[0] == commands[1] and any("ablFfnGluAtOptimLr" in line for line in commands[0])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cells.tex", r"L\_n \textless{}b\textgreater{}norm\textless{}/b\textgreater{} + G\&L\#U + 0.001"),
        ("effects.tex", r"\{FFN\}\textasciicircum{}2: G\&L\#U $-$ mlp at rate=0.01"),
        ("effects.tex", r"norm: 50 \% of \$x\$ $-$ L\_n "),
        ("claims.tex", r"G\&L\#U"),
        ("losses.tex", r"50 \% of \$x\$ + G\&L\#U + 0.01"),
        ("methods.tex", r"mlp and G\&L\#U~\cite{dauphin2016language} as \{FFN\}\textasciicircum{}2"),
        ("methods.tex", r"The reference is norm=L\_n "),
        ("methods.tex", r"within each level of rate"),
        ("macros.tex", "% norm: 50 % of $x$ − L_n <b>norm</b> at rate=0.001"),
        ("effects.md", r"50 % of \$x\$ − L_n \<b>norm\</b> at rate=0.001 |"),
        ("report.md", r"norm: L_n \<b>norm\</b>, 50 % of \$x\$; {FFN}^2: mlp, G&L#U; rate: 0.001, 0.01"),
    ],
)
def test_labels_are_escaped_for_what_they_stand_in(labelled: tuple[Path, str], name: str, said: str) -> None:
    assert said in read(labelled[0], name)


def test_the_page_shows_labels_as_text_and_no_name_that_has_one(labelled: tuple[Path, str]) -> None:
    page = read(labelled[0], "report.html")
    assert "<b>norm" not in page and "L_n &lt;b&gt;norm&lt;/b&gt;" in page
    text = html.unescape(re.sub(r"(?s)<script.*?</script>|<style.*?</style>|<[^>]*>", "\n", page))
    for said in (
        "What do norm, {FFN}^2 and rate change?",
        "G&L#U in place of mlp at rate=0.001: descriptive",
        "interaction of 50 % of $x$ and G&L#U at rate=0.001: ",
        "norm: L_n <b>norm</b>, 50 % of $x$; {FFN}^2: mlp, G&L#U; rate: 0.001, 0.01",
        "L_n <b>norm</b> + mlp + 0.001 (reference)",
        "at norm=50 % of $x$",
    ):
        assert said in text, said
    curves = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert curves is not None
    names = [cell["name"] for cell in json.loads(curves[1])["cells"]]
    assert "L_n <b>norm</b> + G&L#U + 0.01" in names


def test_no_table_and_no_sentence_has_a_name_that_has_a_label(labelled: tuple[Path, str]) -> None:
    """But for configurations, paths of runs and the command, which are quoted as they are."""
    for file in (file for kind in ("*.md", "*.tex") for file in labelled[0].glob(kind)):
        text = file.read_text()
        text = re.sub(r"(?s)## Runs\n.*", "", text) if file.name == "report.md" else text
        text = re.sub(r"\\newcommand.*|\\cite\{.*?\}", "", text)
        found = re.findall(r"(?<![\w-])(?:ln|rms|glu|ffn|optim\\?\.lr)(?![\w-])", text)
        assert not found, f"{file.name}: {found}"


def test_what_is_printed_has_the_labels(plain: tuple[Path, str], labelled: tuple[Path, str]) -> None:
    assert "norm: rms − ln at optim.lr=0.001  " in plain[1]
    assert "norm: 50 % of $x$ − L_n <b>norm</b> at rate=0.001  " in labelled[1]
    assert "gated (registered): " in labelled[1] and "G&L#U" in labelled[1]


def test_a_figure_with_labels_is_verified(labelled: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    file = labelled[0] / "seeds.png"
    assert main(["verify", str(file)]) == 0 and "matches fabricated" in capsys.readouterr().out
    edits = labelled[0] / "figures.yaml"
    before = edits.read_text()
    try:
        edits.write_text(before.replace("G&L#U", "GLU"))
        assert main(["verify", str(file)]) == 1
        assert "figures.yaml has changed since; no run has changed" in capsys.readouterr().out
    finally:
        edits.write_text(before)


def test_placebos_and_what_noise_does_have_the_labels(tmp_path: Path) -> None:
    """Placebos are a study of their own, which knows nothing of the labels."""
    moved = {None: 0.0, "ffn": 0.012, "chaos": 0.003}

    def noisy(levels: dict[str, Any], seed: int) -> float:
        return 2 + 0.01 * seed + moved[levels["seed.placebo"]] * float(np.random.default_rng([seed, 7]).normal())

    fabricate(
        tmp_path, {"seed.placebo": list(moved)}, seeds=range(12), score=noisy, study="aa", placebo_of="fabricated"
    )
    manifest = study_folder(tmp_path, "aa") / "manifest.json"
    content = json.loads(manifest.read_text())
    for cell in content["cells"]:  # as a sweep calls them
        kind = cell["levels"]["seed.placebo"]
        cell["label"] = "ln + mlp" + (f", {kind} drawn anew" if kind == "ffn" else f", {kind}" if kind else "")
    write_json(manifest, content)
    labels = {name: text for name, text in LABELS.items() if name != "optim.lr"} | {"mlp": "MLP"}
    two = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"]}
    folder, said = analysed(tmp_path, labels, two, placebos="aa")
    report = read(folder, "report.md")
    assert "placebos (placebo_seeds=12, L_n \\<b>norm\\</b> + MLP): " in report
    assert "({FFN}^2 drawn anew; 95 % upper bound" in report
    assert "seeds each: {FFN}^2 drawn anew and chaos." in read(folder, "methods.md")
    assert "ffn drawn anew" not in report + said and "ln + mlp" not in report + said


def test_labels_that_are_each_others_names_are_not_mixed_up(tmp_path: Path) -> None:
    folder, _ = analysed(tmp_path, {"mlp": "glu", "glu": "mlp"})
    assert "ffn: mlp − glu at optim.lr=0.001" in read(folder, "effects.md")
    assert "mlp in place of glu at optim.lr=0.001: " in read(folder, "report.md")
    assert "| rms + mlp + 0.01 | diverged |" in read(folder, "losses.md")
