"""The wheel holds what the checkout holds, and works from a folder with nothing in it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, SHAPE, STEPS
from page_code import code

PLACES = {"experiments/": "ablate/_experiments/"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout."""
    pytest.importorskip("hatchling", reason="no hatchling: pip install -e '.[wheel]'")
    folder = tmp_path_factory.mktemp("wheel")
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), folder=ROOT)
    (file,) = folder.glob("*.whl")
    return file


def done(*command: str, folder: Path, **environment: str) -> str:
    """What a command says, without an installed checkout in its way; fails where it fails."""
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | environment
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout + ended.stderr


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_checkout_that_runs_need(wheel):
    listed = done("git", "ls-files", "-co", "--exclude-standard", "--deduplicate", folder=ROOT).splitlines()
    expected = {name for name in listed if name.startswith(("ablate/", "analysis/"))}
    for place, to in PLACES.items():
        expected |= {to + name.removeprefix(place) for name in listed if name.startswith(place)}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {name for name in expected if name.startswith(tuple(PLACES.values())) or (ROOT / name).exists()}
    assert {"ablate/conf/papers.bib", "ablate/py.typed", "ablate/conf/config.yaml", "analysis/py.typed"} <= held


@pytest.mark.slow
def test_everything_works_from_the_wheel_alone(wheel, text, tmp_path):
    site, folder = tmp_path / "site", tmp_path / "empty"
    folder.mkdir()
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    done(sys.executable, *pip, folder=folder)

    def said(*command: str) -> str:
        return done(sys.executable, *command, folder=folder, PYTHONPATH=f"{site}{os.pathsep}{folder}")

    where = said("-c", "import ablate, analysis; print(ablate, analysis)")
    assert where.count(f"'{site}{os.sep}") == 2
    shown = said(str(site / "bin" / "ablate"), "--help")
    assert "A comma makes a factor" in shown and "rms" in shown
    assert "8 configurations × 8 seeds" in said("-m", "ablate", "+experiment=glu_variants", "dry_run=true")
    assert [path.name for path in folder.iterdir()] == []

    quick = [*SHAPE, *STEPS, "data=text", f"data.path={text}", "seeds=2"]
    assert "4 runs: 4 done" in said("-m", "ablate", "-m", "norm=ln,rms", *quick)
    assert "norm: RMSNorm − LayerNorm" in said("-m", "analysis")
    (report,) = folder.glob("results/figures/*/report.html")
    assert "Plotly" in report.read_text(encoding="utf-8")
    assert "0 to do" in said("-m", "ablate", "-m", "norm=ln,rms", *quick, "dry_run=true")
    for language, name in (("python", "my_package/norms.py"), ("yaml", "my_conf/norm/max.yaml")):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(code("own-component.md", language)[0], encoding="utf-8")
    (folder / "my_package" / "__init__.py").touch()
    own = ["--config-dir", "my_conf", "user=[my_package]"]
    assert "2 runs: 2 done" in said("-m", "ablate", "-m", "norm=max", *own, *quick)


def committed(folder: Path, *names: str) -> None:
    """A repository with a commit of these files."""
    name = ["-c", "user.name=x", "-c", "user.email=x@y.z", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", *names], [*name, "commit", "-qm", "all"]):
        done("git", *command, folder=folder)


def test_a_commit_is_of_the_code_and_only_what_belongs_to_it_counts_as_a_change(tmp_path, monkeypatch):
    from ablate.execution import train_run as run_facts

    def dirty() -> bool:
        found = run_facts.git()
        assert found is not None and len(found.commit) == 40
        return bool(found.dirty)

    def write(name: str, text: str = "") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    code = write("ablate/execution/train_run.py")
    write("notes.md")
    committed(tmp_path, ".")
    monkeypatch.setattr(run_facts, "__file__", str(write(".venv/train_run.py")))
    assert run_facts.git() is None, "code that is installed below a repository is not of its commit"
    monkeypatch.setattr(run_facts, "__file__", str(code))
    assert not dirty()
    mine = write("mine/norms.py")
    assert not dirty(), "a new file that no run reads"
    monkeypatch.setitem(sys.modules, "mine.norms", type(sys)("mine.norms"))
    sys.modules["mine.norms"].__file__ = str(mine)
    assert dirty(), "a new file that was imported"
    mine.unlink()
    new = write("ablate/conf/norm/new.yaml")
    assert dirty(), "a new file of the package"
    new.unlink()
    assert not dirty()
    write("notes.md", "changed")
    assert dirty(), "a file of the commit that is another now"
    first = run_facts.git()
    committed(tmp_path, "notes.md")
    second = run_facts.git()
    assert first and second and second.commit != first.commit, "a process stamps each run with the commit of its time"
