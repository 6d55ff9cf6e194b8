"""A module of a user's own, with a name of the test's own, and variants of its classes."""

from pathlib import Path
from typing import Any


def write_module(folder: Path, patch: Any, source: str, group: str, variants: dict[str, str]) -> str:
    """Write a module, and a variant of a group for each of these classes of it, with settings; the module's name."""
    name = f"own_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(source)
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder))
    (folder / "conf" / group).mkdir(parents=True)
    for variant, settings in variants.items():
        text = f"# {variant}.\n_target_: {name}.{variant.title()}\n_partial_: true\n{settings}\n"
        (folder / "conf" / group / f"{variant}.yaml").write_text(text)
    return name
