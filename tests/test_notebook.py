"""The tutorial notebook, cell by cell in a process of its own; what each cell shows last, shows itself."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import ROOT, run_module

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
# As a kernel does it: what a cell ends with is an expression, which is shown.
KERNEL = """
import ast, json, sys
space, shown = {"__name__": "__main__"}, []
cells = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
for source in ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), space) if last else None
    kinds = [name for name in ("_repr_html_", "_repr_png_") if getattr(value, name, lambda: None)()]
    shown.append([kinds, repr(value)])
print("SHOWN", json.dumps(shown))
"""


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["nbformat"] == 4 and len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert not any(cell["outputs"] for cell in code), "what it shows comes from a run"
    (tmp_path / "ablate_notebook.py").write_text(KERNEL)
    done = run_module("ablate_notebook", str(NOTEBOOK), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said, _, shown = done.stdout.partition("SHOWN ")
    assert "did you mean rms?" in said and "did you mean ffn?" in said
    kinds = [[*kinds] for kinds, _ in json.loads(shown)]
    assert kinds.count(["_repr_html_"]) == 5 and kinds.count(["_repr_png_"]) == 2
    assert (tmp_path / "results" / "figures" / "first_steps" / "report.html").exists()
    assert len(list(tmp_path.glob("results/runs/*/*/result.json"))) == 24
