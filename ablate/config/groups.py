"""The groups and variants on disk.  Imports nothing slow, since `--help` needs this."""

import contextlib
import dataclasses
import difflib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.config.errors import PlanError, Problem
from ablate.config.files import read_plain, read_regular
from ablate.config.schema import SECTIONS

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = (PACKAGE.parent / "conf" / "config.yaml").exists()
CONF = PACKAGE.parent / "conf" if CHECKOUT else PACKAGE / "_conf"
EXPERIMENTS = PACKAGE.parent / "experiments" if CHECKOUT else PACKAGE / "_experiments"
FIGURES = PACKAGE.parent / "analysis" / "figures" / "kinds"
NAMES = "names.yaml"  # in the same folder as the groups; the user's folder may have another one


@dataclasses.dataclass(frozen=True)
class Groups:
    """The built-in groups, variants and study files, and those in the user's folder."""

    folder: str | None  # the user's (--config-dir)
    variants: dict[str, dict[str, Path]]  # by group and name
    studies: dict[str, Path]  # study files by name
    defaults: dict[str, str]  # the reference model's variant of each group
    own: tuple[Path, ...] = ()  # the files of the user's folder

    def plus(self, key: str) -> str:
        """The + that Hydra requires before a group that the reference model does not have."""
        return "+" if key in self.variants and key not in self.defaults else ""


def read_groups(config_dir: str | None = None) -> Groups:
    """The groups, variants and study files on disk."""
    own = tuple(sorted(Path(config_dir).glob("*/*.yaml"))) if config_dir else ()
    return Groups(config_dir, groups(config_dir), experiments(config_dir), defaults(), own)


def groups(config_dir: str | None = None) -> dict[str, dict[str, Path]]:
    """Every group and its variants' files, from `conf/` and the user's folder."""
    found: dict[str, dict[str, Path]] = {}
    for root in [CONF, *([Path(config_dir)] if config_dir else [])]:
        for file in sorted(root.glob("*/*.yaml")):
            if file.parent.name != "experiment":  # study files are no variants
                found.setdefault(file.parent.name, {})[file.stem] = file
    return found


def experiments(config_dir: str | None = None) -> dict[str, Path]:
    """Every study file by name, the built-in ones and those of `experiment/` in the user's folder."""
    folders = [EXPERIMENTS, *([Path(config_dir) / "experiment"] if config_dir else [])]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml"))}


@functools.cache
def figures() -> list[str]:
    """The kinds of figures that `analysis` draws, by file name, without importing it."""
    return sorted(file.stem for file in FIGURES.glob("[!_]*.py"))


@functools.cache
def default_choices() -> dict[str, Any]:
    """The reference model's choice of each group: a variant, or a list of tracking services."""
    listed = read_plain(CONF / "config.yaml")["defaults"]
    return {group: choice for entry in listed if isinstance(entry, dict) for group, choice in entry.items()}


@functools.cache
def defaults() -> dict[str, str]:
    """The reference model's variant of each group; the first of a list."""
    return {group: each[0] if isinstance(each, list) else each for group, each in default_choices().items()}


@functools.cache
def default_settings(group: str) -> dict[str, Any]:
    """The settings of the reference model's variant of a group."""
    return read_plain(CONF / group / f"{defaults()[group]}.yaml")


def description(file: Path) -> str:
    """A variant's description: the first comment of its YAML; empty if the file cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in read_regular(file).decode().splitlines():
            if line.startswith("#") and "@package" not in line:
                return line.lstrip("# ").rstrip()
    return ""


def noted(file: Path, word: str) -> list[str]:
    """The words of a YAML's comment `# word: one, two`, in order."""
    lines = re.findall(rf"^# {word}:(.*)$", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return [each.strip() for line in lines for each in line.split(",") if each.strip()]


@functools.cache
def groups_of_conf() -> list[str]:
    """The groups that ablate has."""
    return sorted({file.parent.name for file in CONF.glob("*/*.yaml")})


COMMENTS = ("name", "cite", "also")  # what comments of a YAML can say
COMMENT = re.compile(r"^# (\w+):", re.MULTILINE)


def misspelt_comments(file: Path) -> list[tuple[str, str]]:
    """The words of a YAML's comments `# word: ...` that are nearly one that is read, and that one."""
    text = file.read_text(encoding="utf-8", errors="replace")
    pairs = []
    for word in COMMENT.findall(text):
        meant = difflib.get_close_matches(word, COMMENTS, 1, 0.7)
        if word not in COMMENTS and meant:
            pairs.append((word, meant[0]))
    return pairs


def other_names(variants: Mapping[str, Path]) -> dict[str, str]:
    """The names that papers and libraries give to variants, `# also: LayerNorm`, and the variant of each."""
    return {other: name for name, file in variants.items() for other in noted(file, "also")}


@functools.cache
def named_elsewhere() -> dict[str, str]:
    """The key that other libraries give another name, or that is meant by its name alone, by that name."""
    own = {field.name: f"{name}.{field.name}" for name in SECTIONS for field in dataclasses.fields(SECTIONS[name])}
    known = read_plain(Path(__file__).with_name("named_elsewhere.yaml"))
    return own | {other: key for key, others in known.items() for other in others.split()}


@functools.cache
def names_in(folder: Path = CONF) -> dict[str, str]:
    """What papers call the variants, keys and metrics of a folder: `# name: ReLU MLP` of a variant's YAML by
    group=variant, and names.yaml.  Raises `PlanError`."""
    file = folder / NAMES
    found = read_plain(file) if file.exists() else {}
    if not (isinstance(found, dict) and all(isinstance(name, str) for name in found.values())):
        raise PlanError([Problem("", f"{file}: must be lines of the form `key: name`")])
    variants = {f"{file.parent.name}={file.stem}": noted(file, "name") for file in sorted(folder.glob("*/*.yaml"))}
    return found | {variant: ", ".join(name) for variant, name in variants.items() if name}
