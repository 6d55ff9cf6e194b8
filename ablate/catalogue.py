"""The groups and variants on disk.  Imports nothing heavy: `--help` is made of this."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CONF = PACKAGE.parent / "conf" if (PACKAGE.parent / "conf" / "config.yaml").exists() else PACKAGE / "_conf"


def groups(config_dir: str | None = None) -> dict[str, dict[str, Path]]:
    """Every group and its variants' files, from the project's `conf/` and a folder of the user's."""
    found: dict[str, dict[str, Path]] = {}
    for root in [CONF, *([Path(config_dir)] if config_dir else [])]:
        for file in sorted(root.glob("*/*.yaml")):
            found.setdefault(file.parent.name, {})[file.stem] = file
    return found


def defaults() -> dict[str, str]:
    """The variant of each group that the reference model has."""
    import yaml

    listed = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["defaults"]
    return {group: variant for entry in listed if isinstance(entry, dict) for group, variant in entry.items()}


def shadowed(config_dir: str) -> list[Path]:
    """Files of a user's folder that bear the name of a variant of the project's, which would win."""
    return [
        file for file in sorted(Path(config_dir).glob("*/*.yaml")) if (CONF / file.parent.name / file.name).exists()
    ]


def first_line(file: Path) -> str:
    """What a variant's YAML says it is: its first comment."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ").rstrip()
    return ""
