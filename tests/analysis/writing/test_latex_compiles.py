"""What the analysis writes for a paper is compiled: by pdfLaTeX and BibTeX, where they are found."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_studies import fabricate
from shown_studies import claim

from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.cli.output import write_paper
from analysis.writing import tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("pdflatex") and shutil.which("bibtex")),
        reason="no pdflatex: as root, apt-get install texlive-latex-recommended lmodern",
    ),
]
HOSTILE = [
    "ln",
    r"a_b & c%#${}~^\x",
    "\"q\" `b` 'c' '' ,, << -- --- −±≤√⊙β₂10⁻³",
    "中文 ☃ Ω µ кириллица ñ é Ħ ə \u200b x",
    "L" * 150,
    "w" + " long" * 60,
]
PAPERS = {
    "norm=ln": {"ba2016layer": {"author": "Ba, Jimmy Lei and others", "title": r"{Layer} N\'orm", "year": "2016"}},
    "ffn=mlp": {
        "deletang2022neural": {"author": "Delétang, Grégoire and others", "year": "2022", "eprint": "2207.02098"},
        "doe2024x": {"author": "Doe_X and {Roe & Sons}", "title": r"100 % of \input{x} {", "year": "2024"},
    },
    "user=@misc{x": {"xiong2020layer": {"author": "Xiong, Ruibin", "title": "On $x^2$", "year": "2020"}},
}
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
CLAIM = claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}], metric="test/loss")
STUDIES: dict[str, dict[str, Any]] = {
    "plain": {"factors": GRID, "seeds": range(6), "claims": {"a_b%": CLAIM}, "papers": PAPERS},
    "hostile": {"factors": {"user.k_y%": HOSTILE, "ffn": ["mlp", "swiglu"]}, "papers": PAPERS},
    "many": {"factors": {"norm": [f"n{i}" for i in range(17)], "ffn": [f"f{i}" for i in range(6)]}},
    "lost": {
        "factors": GRID | {"optim.lr": [1e-3, 3e-3, 1e-2]},
        "seeds": range(5),
        "status": lambda levels, seed: "diverged" if levels["optim.lr"] == 1e-2 and seed % 2 else "done",
    },
}
PAPER = r"""\documentclass[%s]{article}
\usepackage[T1]{fontenc}
\usepackage{lmodern,array,booktabs,graphicx,textcomp}
\input{macros}
\begin{document}
\input{methods}
%s
\clearpage
\raggedright
%s
\nocite{*}
\bibliographystyle{plain}
%s
\end{document}
"""


def paper(folder: Path, options: str) -> str:
    """A paper of every table, of every command in text and in a formula, and of all references."""
    files = sorted(file for file in folder.glob("*.tex") if file.stem not in ("macros", "methods", "paper"))
    labels = [re.search(r"\\label\{(.*?)\}", file.read_text(encoding="utf-8")) for file in files]
    shown = [
        rf"\input{{{file.stem}}} Table~\ref{{{label and label[1]}}}." for file, label in zip(files, labels, strict=True)
    ]
    commands = re.findall(r"\\newcommand\{(\\\w+)\}", (folder / "macros.tex").read_text(encoding="utf-8"))
    said = [f"{command}{{}} ${command}$;" for command in commands]
    cited = r"\bibliography{references}" * (folder / "references.bib").exists()
    return PAPER % (options, "\n".join(shown), "\n".join(said), cited)


def compiled(folder: Path) -> str:
    """The log of the last of the runs that references need; fails where one of them does."""
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    bibtex = [["bibtex", "paper"]] * (folder / "references.bib").exists()
    for command in (latex, *bibtex, latex, latex):
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
        assert ended.returncode == 0, ended.stdout[-3000:]
        assert command[0] != "bibtex" or "arning" not in ended.stdout, ended.stdout
    return ended.stdout


@pytest.mark.parametrize("options", ["10pt", "twocolumn"])
@pytest.mark.parametrize("study", STUDIES)
def test_a_paper_with_everything_compiles_and_nothing_leaves_the_page(tmp_path: Path, study: str, options: str) -> None:
    found = case_of(load_study(tmp_path, fabricate(tmp_path, **STUDIES[study])), tmp_path)
    tables.write(found, tmp_path)
    write_paper(found, tmp_path)
    (tmp_path / "paper.tex").write_text(paper(tmp_path, options), encoding="utf-8")
    log = compiled(tmp_path)
    assert re.search(r"Output written on paper.pdf \(\d+ pages", log)
    wrong = re.findall(r"(?m)^(?:Overfull|LaTeX Warning|Missing character).*", log)
    assert not wrong, wrong
