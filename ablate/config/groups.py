"""The groups and variants on disk.  Imports nothing slow, since `--help` needs this."""

import contextlib
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.files import read_plain, read_regular
from ablate.config.schema import KEYS, SECTIONS, types_of

PACKAGE = Path(__file__).resolve().parents[1]
CONF = PACKAGE / "conf"
CHECKOUT = (PACKAGE.parent / "experiments" / "FINDINGS.md").exists()
EXPERIMENTS = PACKAGE.parent / "experiments" if CHECKOUT else PACKAGE / "_experiments"
# Keys of study files besides settings.
STUDY_FILE_KEYS = ("question", "published", "figure", "factors", "claims", "replicated", "mirror", "tiers")
FIGURES = (  # that `analysis` draws, in the order of the report
    *("ladder", "effects", "claims", "mirror", "waterfall", "interactions", "seeds", "curves", "solved"),
    *("sensitivity", "extrapolation", "width", "pareto", "diagnostics"),
)


@dataclass(frozen=True)
class Groups:
    """The built-in groups, variants and study files, and those in the user's folder."""

    folder: str | None  # the user's (--config-dir)
    variants: dict[str, dict[str, Path]]  # by group and name
    studies: dict[str, Path]  # study files by name
    defaults: dict[str, str]  # the reference model's variant of each group

    def plus(self, key: str) -> str:
        """The + that Hydra requires before a group that the reference model does not have."""
        return "+" if key in self.variants and key not in self.defaults else ""


def read_groups(config_dir: str | None = None) -> Groups:
    """The groups, variants and study files on disk."""
    return Groups(config_dir, groups(config_dir), experiments(config_dir), defaults())


def groups(config_dir: str | None = None) -> dict[str, dict[str, Path]]:
    """Every group and its variants' files, from `ablate/conf/` and the user's folder."""
    by_group: dict[str, dict[str, Path]] = {}
    for root in [CONF, Path(config_dir)] if config_dir else [CONF]:
        for file in sorted(root.glob("*/*.yaml")):
            if file.parent.name != "experiment":  # study files are no variants
                by_group.setdefault(file.parent.name, {})[file.stem] = file
    return by_group


def experiments(config_dir: str | None = None) -> dict[str, Path]:
    """Every study file by name, the built-in ones and those of `experiment/` in the user's folder."""
    files = sorted(EXPERIMENTS.glob("*.yaml"))
    if config_dir:
        files += sorted(Path(config_dir).glob("experiment/*.yaml"))
    return {file.stem: file for file in files}


@functools.cache
def default_choices() -> dict[str, Any]:
    """The reference model's choice of each group: a variant, or a list of tracking services."""
    choices: dict[str, Any] = {}
    for entry in read_plain(CONF / "config.yaml")["defaults"]:
        if isinstance(entry, dict):
            choices |= entry
    return choices


@functools.cache
def defaults() -> dict[str, str]:
    """The reference model's variant of each group; the first of a list."""
    variants = {}
    for group, choice in default_choices().items():
        variants[group] = choice[0] if isinstance(choice, list) else choice
    return variants


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


COMMENTS = ("name", "cite", "also")  # what comments of a YAML can say
COMMENT = re.compile(r"^# (\w+):(.*)$", re.MULTILINE)


def comments(file: Path) -> list[tuple[str, str]]:
    """The comments `# word: text` of a YAML."""
    return COMMENT.findall(file.read_text(encoding="utf-8", errors="replace"))


def comment_words(file: Path, word: str) -> list[str]:
    """The words of a YAML's comment `# word: one, two`, in order."""
    words = []
    for name, text in comments(file):
        if name == word:
            words += [part.strip() for part in text.split(",") if part.strip()]
    return words


def other_names(variants: Mapping[str, Path]) -> dict[str, str]:
    """What papers and libraries call variants, `# name: RMSNorm` and `# also: LayerNorm`, and the variant of each."""
    names: dict[str, str] = {}
    for variant, file in variants.items():
        names |= dict.fromkeys([*comment_words(file, "name"), *comment_words(file, "also")], variant)
    return names


@functools.cache
def named_elsewhere() -> dict[str, str]:
    """The key that other libraries give another name, or that is meant by its name alone, by that name."""
    keys = {}
    for section, kind in SECTIONS.items():
        for name in types_of(kind):
            keys[name] = f"{section}.{name}"
    keys |= {key: key for key in KEYS if key not in SECTIONS}  # seeds is not tune.seeds
    for key, names in read_plain(Path(__file__).with_name("named_elsewhere.yaml")).items():
        keys |= dict.fromkeys(names.split(), key)
    return keys


@functools.cache
def names_in(folder: Path = CONF) -> dict[str, str]:
    """What papers call the variants of a folder, `# name: ReLU MLP` by group=variant; of ablate's own also keys and
    metrics, from names.yaml."""
    names = dict(read_plain(CONF / "names.yaml")) if folder == CONF else {}
    for variant in sorted(folder.glob("*/*.yaml")):
        name = ", ".join(comment_words(variant, "name"))
        if name:
            names[f"{variant.parent.name}={variant.stem}"] = name
    return names
