"""The documentation: short where it must be, its links lead somewhere, and what the code knows better is up to date."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, run_fresh
from fake_studies import fabricate
from in_process import command
from page_code import blocks, code
from write_catalogue import pages

from ablate.cli import main as subcommands
from ablate.config.groups import groups
from ablate.runs import load_study
from analysis.case import case_of
from analysis.case.figures_yaml import Edits
from analysis.figures import KINDS
from analysis.figures.kind import page_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, ROOT / "experiments" / "FINDINGS.md"]


@pytest.mark.parametrize("name", ["catalogue.md", "keys.md"])
def test_a_generated_page_is_what_the_code_says(name):
    known = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert known == pages()[name], f"docs/{name} is old: run make catalogue"


def test_the_table_of_forms_names_every_task():
    page = "docs/models-and-tasks.md"
    table = (ROOT / page).read_text(encoding="utf-8").partition("| task | forms |")[2].partition("\n\n")[0]
    tasks = {name.removeprefix("data=") for row in table.splitlines() for name in re.findall(r"`([\w=]+)`", row)}
    missing = sorted(groups()["data"].keys() - tasks)
    assert not missing, f"{page}: write {', '.join(missing)} in the table of forms, beside tasks of the same forms"


def test_every_kind_of_figure_is_in_the_docs():
    page = "docs/how-to/figures-and-papers.md"
    table = (ROOT / page).read_text(encoding="utf-8").partition("| has the figures |")[2].partition("\n\n")[0]
    told = set(re.findall(r"\w+", " ".join(row.split("|")[2] for row in table.strip().splitlines()[1:])))
    missing = sorted(KINDS.keys() - told)
    assert not missing, f"{page}: write {', '.join(missing)} in the table of figures, beside the studies that have it"


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8").replace("\n", " ")):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in set(anchors(target)), f"{link}: no such chapter"


def anchors(page: Path) -> Iterator[str]:
    """What GitHub calls the chapters of a page in links."""
    for title in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path):
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason=f"{name} is not installed: make docs")
    options = ["-q", "-W", "--keep-going", "-c", str(ROOT / "docs" / "site"), "-d", str(tmp_path / "doctrees")]
    done = run_fresh("sphinx", *options, str(ROOT), str(tmp_path / "html"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "docs" / "keys.html").is_file()


def test_the_study_file_that_is_shown_is_the_one_on_disk():
    file = (ROOT / "experiments" / "glu_variants.yaml").read_text(encoding="utf-8")
    assert file in (ROOT / "docs" / "how-to" / "designs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["ablate", "analysis"])
def test_the_map_of_the_packages_names_each(package):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition(f"| package of `{package}/`")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    there = {file.parent.name for file in (ROOT / package).glob("*/__init__.py")}
    assert named == there


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every sweep that a page shows, without what is behind them."""
    for block in blocks(page.read_text(encoding="utf-8"), ""):
        for line in block.splitlines():
            if not line.startswith("ablate "):
                continue
            first = line.split()[1]
            if first not in subcommands.COMMANDS and not first.startswith("--"):
                yield shlex.split(line, comments=True)[1:]


COMMANDS = {shlex.join(words): words for page in PAGES for words in commands(page)}
# What is shown because it is refused, and what needs a launcher, a text or a package.
REFUSED = ("norm=rmss", "residual=pre,post norm=none", "scale=base train.batch_size=4096")
ELSEWHERE = ("hydra/launcher=", "data.path=", "user=[")
ON_A_GPU = "attention.kernels="


@pytest.mark.slow
@pytest.mark.parametrize("line", [text for text in COMMANDS if not any(part in text for part in ELSEWHERE)])
def test_a_command_plans_as_it_is_written(line, tmp_path):
    if ON_A_GPU in line and not torch.cuda.is_available():
        pytest.skip("flash-linear-attention's kernels are refused without a GPU")
    dry = [] if "dry_run=true" in COMMANDS[line] else ["dry_run=true"]
    done = command(*COMMANDS[line], *dry, cwd=tmp_path)
    if "end what else runs on this machine" in done.stderr:
        pytest.skip("this machine is too busy to measure what a step takes")
    assert done.returncode == (2 if any(part in line for part in REFUSED) else 0), done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.fixture
def reader(tmp_path) -> Path:
    """The folder of somebody who wrote the files of the tutorial, with a short text and a script of few steps."""
    norm, script = code("../tutorial.md", "python")
    variant, study = code("../tutorial.md", "yaml")
    files = {"my_norm.py": norm, "my_conf/norm/abs.yaml": variant, "my_conf/experiment/abs_norm.yaml": study}
    files["train.py"] = script.replace("range(500)", "range(2)")
    files["mine.txt"] = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted({shlex.join(words) for words in commands(TUTORIAL)}))
def test_a_command_of_the_tutorial_plans_as_it_is_written(line, reader):
    dry = [] if "dry_run=true" in line else ["dry_run=true"]
    done = command(*shlex.split(line), *dry, cwd=reader)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "post hoc" not in done.stdout and not (reader / "results").exists()


@pytest.mark.slow
def test_the_script_of_the_tutorial_prints_the_metric_that_its_command_reads(reader):
    shown = next(text for text in code("../tutorial.md", "") if text.startswith("ablate command"))
    words = shlex.split(shown.replace("\\\n", " ").replace("python train.py", f"{sys.executable} train.py"))
    done = command(*words[1:], "seeds=1", "track=none", cwd=reader)
    assert done.returncode == 0 and "activation=tanh" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def own(tmp_path) -> list[str]:
    """The package and the variants that the how-to pages write, and the arguments that make them known."""
    norms, styles, *others = code("own-component.md", "python")
    confidence, *_, root = code("own-objective.md", "python")
    package = {"norms.py": norms, "more.py": styles, "others.py": "\n".join([*others, confidence, root])}
    parity, growing = code("own-task.md", "python")
    package["tasks.py"] = parity + code("own-metric.md", "python")[0]
    package |= {"data.py": growing, "steps.py": code("own-step.md", "python")[0]}
    variants = {"norm/max": code("own-component.md", "yaml")[0], "data/parity": code("own-task.md", "yaml")[0]}
    variants["data/last_parity"] = code("own-metric.md", "yaml")[0]
    variants["data/growing"] = code("own-task.md", "yaml")[1]
    variants["step/noise"] = code("own-step.md", "yaml")[0]
    settings = {
        "embedding/hashed": "buckets: 16",
        "position/distance": "strength: 1.0",
        "objective/confidence": "beta: 0.1",
        "schedule/root": "power: 0.5",
    }
    for name, setting in settings.items():
        made = name.partition("/")[2].title()
        variants[name] = f"# {made}.\n_target_: my_package.others.{made}\n_partial_: true\n{setting}\n"
    variants["residual/weighted"] = "# Weighted.\n_target_: my_package.more.Weighted\n_partial_: true\nweight: 0.5\n"
    gqa = (ROOT / "ablate" / "conf" / "attention" / "gqa.yaml").read_text(encoding="utf-8")
    cosine = gqa.replace("kv_heads: 2", "kv_heads: null").replace(
        "ablate.model.attention.GQA", "my_package.more.Cosine"
    )
    variants["attention/cosine"] = cosine
    files = {f"my_package/{name}": text for name, text in package.items()} | {"my_package/__init__.py": ""}
    for name, text in (files | {f"my_conf/{name}.yaml": text for name, text in variants.items()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return ["--config-dir", "my_conf", "user=[my_package]"]


@pytest.mark.slow
def test_the_components_of_the_how_to_page_plan(own, tmp_path):
    cells = ["norm=ln,max", "attention=mha,cosine", "residual=pre,weighted", "schedule=cosine,root"]
    cells += ["embedding=learned,hashed", "objective=cross_entropy,confidence", "model.tie_embeddings=false"]
    cells += ["position=rope,distance", "design=one_at_a_time"]
    done = command("-m", *cells, "dry_run=true", *own, cwd=tmp_path)
    assert done.returncode == 0 and "8 configurations" in done.stdout, done.stdout + done.stderr


HOW_TO = [words for page in sorted((ROOT / "docs" / "how-to").glob("*.md")) for words in commands(page)]


@pytest.mark.slow
@pytest.mark.parametrize("line", [shlex.join(words) for words in HOW_TO if "my_conf" in words])
def test_a_command_with_the_package_of_the_how_to_pages_plans(line, own, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"{number} squared is {number**2}." for number in range(5000)))
    words = [word.replace("FILE", "text.txt") for word in shlex.split(line)]
    done = command(*words, "dry_run=true", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_task_and_the_metric_of_the_how_to_pages_train(own, tmp_path):
    task = ["data=last_parity", "position=rope,none", "seeds=1", "train.steps=10", "optim.warmup=2", "track=none"]
    done = command("-m", *task, *own, cwd=tmp_path)
    assert done.returncode == 0 and "test/last" in done.stdout, done.stdout + done.stderr


def test_the_figure_of_the_how_to_page_draws(tmp_path):
    scope: dict[str, Any] = {}
    exec(code("own-figure.md", "python")[1], scope)
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    case = case_of(study, tmp_path)
    table = scope["KIND"].table(case)
    assert list(table["name"]) == ["LayerNorm (reference)", "RMSNorm"]
    ranges = study.runs.groupby("cell")["test/loss"].agg(["min", "median", "max"])
    assert (table[["low", "median", "high"]].to_numpy() == ranges.to_numpy()).all()
    table.attrs["title"] = "ranges"
    scope["KIND"].draw(table, page_of(study.manifest, Edits())).savefig(tmp_path / "ranges.pdf")


@pytest.mark.slow
def test_the_code_of_the_page_on_python_runs(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(
        "import sys; print('val/loss:', float(sys.argv[1][5:]) + int(sys.argv[2][-1]))", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec("\n".join(code("../from-python.md", "python")), scope)
    assert scope["page"].is_file()
    assert str(scope["plan"]).startswith("2 configurations × 3 seeds = 6 runs")
    tokens = torch.zeros(1, 5, dtype=torch.long)
    assert scope["trained"](tokens).shape == scope["untrained"](tokens).shape
    assert scope["study"].runs["val/loss"].notna().sum() == 6


@pytest.mark.slow
def test_the_runs_of_another_program_are_analysed(tmp_path):
    table = next(text for text in code("other-programs.md", "") if text.startswith("norm,ffn,seed"))
    (tmp_path / "runs.csv").write_text(table, encoding="utf-8")
    done = command("analyse", "--runs", "runs.csv", cwd=tmp_path)
    assert done.returncode == 0 and "better" in done.stdout, done.stdout + done.stderr


NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


@pytest.mark.slow
def test_jupyter_runs_the_notebook_and_keeps_one_line_of_progress(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[notebook]'")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "what it shows comes from a run"
    nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    streams = {name: [output.text for output in outputs if output.get("name") == name] for name in ("stdout", "stderr")}
    [mistakes] = streams["stdout"]
    assert "did you mean rms?" in mistakes and "did you mean ffn?" in mistakes
    assert all("W&B runs are offline in" in text for text in streams["stderr"]), streams["stderr"]
    ended = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    assert [re.search(r"\d+ done", text)[0] for text in ended] == ["20 done", "4 done"]  # type: ignore[index]
    kinds = [kind for output in outputs if output.output_type == "execute_result" for kind in output.data]
    assert kinds.count("text/html") == 3 and kinds.count("image/png") == 2
