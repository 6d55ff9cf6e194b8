"""The groups and variants on disk.  Imports nothing heavy: `--help` is made of this."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablate.config.files import read_plain, read_regular

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = (PACKAGE.parent / "conf" / "config.yaml").exists()
CONF = PACKAGE.parent / "conf" if CHECKOUT else PACKAGE / "_conf"
EXPERIMENTS = PACKAGE.parent / "experiments" if CHECKOUT else PACKAGE / "_experiments"
ORDER = ["xiong_warmup", "glu_variants", "batch_norm", "rms_norm", "catalogue", "alibi_extrapolation", "mqar_width"]
ORDER += ["mqar_tuned", "qk_norm", "nope_lengths", "catalogue_2"]
FIGURES = PACKAGE.parent / "analysis" / "figures" / "kinds"


@dataclasses.dataclass(frozen=True)
class Groups:
    """What lies on disk, listed once: the project's own and what a folder of the user's adds."""

    folder: str | None  # the user's
    variants: dict[str, dict[str, Path]]  # by group and name
    studies: dict[str, Path]  # study files by name
    defaults: dict[str, str]  # the variant of each group that the reference model has
    own: tuple[Path, ...] = ()  # the files of the user's folder

    def plus(self, key: str) -> str:
        """What Hydra wants before a group that the reference model does not have."""
        return "+" if key in self.variants and key not in self.defaults else ""


def read_groups(config_dir: str | None = None) -> Groups:
    """The groups, variants and study files on disk."""
    own = tuple(sorted(Path(config_dir).glob("*/*.yaml"))) if config_dir else ()
    return Groups(config_dir, groups(config_dir), experiments(config_dir), defaults(), own)


def groups(config_dir: str | None = None) -> dict[str, dict[str, Path]]:
    """Every group and its variants' files, from the project's `conf/` and a folder of the user's."""
    found: dict[str, dict[str, Path]] = {}
    for root in [CONF, *([Path(config_dir)] if config_dir else [])]:
        for file in sorted(root.glob("*/*.yaml")):
            if file.parent.name != "experiment":  # study files, which are no variants
                found.setdefault(file.parent.name, {})[file.stem] = file
    return found


def experiments(config_dir: str | None = None) -> dict[str, Path]:
    """Every study file by name, the project's and those of `experiment/` in a folder of the user's."""
    folders = [EXPERIMENTS, *([Path(config_dir) / "experiment"] if config_dir else [])]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml"))}


@functools.cache
def figures() -> list[str]:
    """The kinds of figures that the analysis draws, by the files that hold them: nothing of it is imported here."""
    return sorted(file.stem for file in FIGURES.glob("[!_]*.py"))


def by_value(names: Iterable[str]) -> list[str]:
    """Names of study files, those of `ORDER` first, the others by name."""
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


@functools.cache
def defaults() -> dict[str, str]:
    """The variant of each group that the reference model has."""
    listed = read_plain(CONF / "config.yaml")["defaults"]
    return {group: variant for entry in listed if isinstance(entry, dict) for group, variant in entry.items()}


@functools.cache
def default_settings(group: str) -> dict[str, Any]:
    """What the variant of a group that the reference model has holds."""
    found: dict[str, Any] = read_plain(CONF / group / f"{defaults()[group]}.yaml")
    return found


def first_line(file: Path) -> str:
    """What a variant's YAML says it is: its first comment; nothing of a file that cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in read_regular(file).decode().splitlines():
            if line.startswith("#") and "@package" not in line:
                return line.lstrip("# ").rstrip()
    return ""
