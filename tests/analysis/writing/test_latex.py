"""LaTeX: every character that means something to TeX is escaped; the files of a study compile within the text."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas
import pytest
from analysed_studies import case
from fake_studies import fabricate
from shown_studies import claim

from ablate.config.citations import papers
from ablate.config.groups import read_groups
from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.writing import latex, output, tables
from analysis.writing.tables import Table

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
# What TeX understands in our texts: named commands, escaped characters, formulas of one command, plain characters.
COMMAND = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|textasciigrave"
    r"|ldots|allowbreak)\{\}|~|\\[_%&#${}]|\$(?:-|[_^][\d-]|\\[a-zA-Z]+)\$|\{\}|[^\\{}$&#^_%~]"
)
SPECIAL = r"\ _ % & # $ { } ~ ^ < > | ' ` " + '"'


def typeset(text: str) -> str:
    """What TeX prints of an escaped text; fails on anything that it would take for a command."""
    characters = {command: character for character, command in latex.COMMANDS.items()}
    characters |= {r"\allowbreak{}": "", "{}": "", "~": " "}
    printed = ""
    place = 0
    while place < len(text):
        match = COMMAND.match(text, place)
        assert match, f"TeX would choke on {text[place:]!r}"
        printed += characters.get(match[0], match[0])
        place = match.end()
    return printed


@pytest.mark.parametrize(
    "text",
    [
        SPECIAL,
        SPECIAL[::-1],
        "d'a ''b'' ,,c",
        r"\input{/etc/passwd}",
        "a--b---c",
        "~~{}",
        "_" * 99,
        "−0.053 ± 0.004 × 2",
        "α = β² ≤ ε ≥ … ⊙ √",
        "naïve Delétang",
    ],
)
def test_texts_are_set_as_they_are(text):
    assert typeset(latex.escape(text)) == text


def test_what_has_no_letter_is_set_as_its_parts_or_its_code():
    assert latex.escape("a\nb\r\n\x00c\td") == "a b c d"
    assert latex.escape("ﬁn €") == "fin €" and latex.escape("e\u0301") == "é"
    assert latex.escape("中x☃") == "[U+4E2D]x[U+2603]" and latex.escape("a\u200bb") == "a[U+200B]b"
    assert latex.escape("10⁻³ h₂ μ") == "10$^-$$^3$ h$_2$ $\\mu$"


def test_no_line_ends_before_a_per_cent_sign_or_at_a_plus_minus():
    assert latex.escape("at 5 % of 1.2 ± 0.1") == r"at 5~\% of 1.2~$\pm$~0.1"


@pytest.mark.parametrize("write", [latex.paper_table, latex.full_table])
def test_a_table_has_its_cells_whatever_they_hold(write):
    rows = pandas.DataFrame({"a": ["[2em]", r"\end{tabular}\write18{rm}"], "b & c": ["*", "% gone \\\\"]})
    text = write(Table("x", "50 % & more", rows))
    lines = [line for line in text.splitlines() if line.endswith(r" \\") and not line.startswith("%")]
    shown = [[typeset(re.sub(r"^\{(.*)\}$", r"\1", part)) for part in line[:-3].split(" & ")] for line in lines[-2:]]
    assert shown == rows.to_numpy().tolist()
    assert r"50~\% \& more" in text


def test_the_paper_has_the_main_comparisons_and_the_appendix_all(tmp_path):
    found = case(tmp_path, GRID, seeds=range(5))
    table = tables.effects_table(found)
    assert table.paper is not None
    assert list(table.paper) == ["effect", "difference [95 %]", "p (Bonferroni)", "verdict"]
    assert len(table.paper) == found.effects["family"].sum() < len(table.rows) == len(found.effects)
    assert r"\small" in latex.paper_table(table)


PAGE = r"""\documentclass[%s]{article}
\usepackage[T1]{fontenc}\usepackage{array,booktabs,graphicx,longtable,pdflscape,tabularx,textcomp}
\usepackage[textwidth=%s,textheight=9in]{geometry}
\begin{document}
\input{methods}
\input{effects}\input{claims}\input{cells}\input{figures}
\typeout{APPENDIX}\clearpage\onecolumn\input{effects-full}\input{claims-full}\input{cells-full}
\bibliographystyle{plain}\bibliography{references}
\end{document}
"""


@pytest.fixture(scope="module")
def paper(tmp_path_factory) -> Path:
    """The files for a paper of a study with long names, two figures and claims."""
    results = tmp_path_factory.mktemp("paper")
    factors = {"norm": ["ln", "rms", "a_norm & 100% {odd}"], "ffn": ["mlp", "swiglu"]}
    cited = papers([{"norm": "rms"}], read_groups())
    claims = {"gated_is_better_than_the_reference": claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}])}
    name = fabricate(results, factors, seeds=range(5), papers=cited, claims=claims)
    folder = results / "figures" / name
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text("subset: {figures: [effects, curves]}\n")
    output.write(case_of(load_study(results, name), folder), folder)
    return folder


@pytest.mark.slow
@pytest.mark.tex
@pytest.mark.parametrize(
    ("columns", "width"), [("10pt", "345pt"), ("10pt", "5.5in"), ("twocolumn", "6.75in"), ("twocolumn", "16cm")]
)
def test_a_paper_compiles_and_its_tables_are_no_wider_than_the_text(columns, width, paper):
    """article, NeurIPS, ICML, ACL."""
    if not shutil.which("pdflatex"):
        pytest.skip("no pdflatex: apt-get install texlive-latex-recommended")
    (paper / "page.tex").write_text(PAGE % (columns, width))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    ended = subprocess.run(command, cwd=paper, capture_output=True, text=True, errors="replace")
    assert ended.returncode == 0, ended.stdout[-2000:]
    body = ended.stdout.partition("APPENDIX")[0]
    assert not re.search(r"Overfull .hbox .*alignment|Missing character", body)
