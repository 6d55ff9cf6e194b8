"""The documentation: short where it must be, its links lead somewhere, and what the code knows better is up to date."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, run_module

from ablate.cli.catalogue import SHOWN, pages
from ablate.config.groups import groups

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SEVERAL = {"status", "diff", "clean", "sync", "evaluate", "analyse", "catalogue"}  # subcommands: no studies to plan
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").stat().st_size <= 12_000


@pytest.mark.parametrize("name", pages())
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    known = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert known == pages()[name], f"docs/{name} is old: run make catalogue"


def test_the_catalogue_names_every_variant() -> None:
    shown = pages()["catalogue.md"]
    for group in SHOWN:
        assert f"`{group}=`" in shown and all(f"| `{name}`" in shown for name in groups()[group])


@each_page
def test_links_lead_somewhere(page: Path) -> None:
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


def test_the_study_file_that_is_shown_is_the_one_on_disk() -> None:
    file = (ROOT / "experiments" / "glu_variants.yaml").read_text(encoding="utf-8")
    assert file in (ROOT / "docs" / "how-to" / "designs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["ablate", "analysis"])
def test_the_map_of_the_packages_names_each(package: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition(f"| package of `{package}/`")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    there = {file.parent.name for file in (ROOT / package).glob("*/__init__.py")}
    assert named == there


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every sweep that a page shows, without what is behind them."""
    for block in re.findall(r"^```\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if not line.startswith("ablate "):
                continue
            words = shlex.split(line, comments=True)[1:]
            if words[0] not in SEVERAL and not words[0].startswith("--"):
                yield words


COMMANDS = {shlex.join(words): words for page in PAGES for words in commands(page)}
# What is shown because it is refused, and what needs a launcher that may not be there.
REFUSED = ("norm=rmss", "residual=pre,post norm=none", "scale=base train.batch_size=4096")
ELSEWHERE = ("hydra/launcher=",)


@pytest.mark.slow
@pytest.mark.parametrize("command", [text for text in COMMANDS if not any(part in text for part in ELSEWHERE)])
def test_a_command_plans_as_it_is_written(command: str, tmp_path: Path) -> None:
    dry = [] if "dry_run=true" in COMMANDS[command] else ["dry_run=true"]
    done = run_module("ablate", *COMMANDS[command], *dry, cwd=tmp_path)
    assert done.returncode == (2 if any(part in command for part in REFUSED) else 0), done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
