"""In which settings the cells of a study differ, read from their resolved configurations."""

from __future__ import annotations

from typing import Any

from ablate import evidence, words

Rows = list[list[str]]


def differences(manifest: dict[str, Any]) -> Rows:
    """A row per setting of a cell that is not its reference's: cell, setting, the reference's value, the cell's."""
    rows = []
    for _, members in evidence.strata(manifest):
        reference = next((cell for cell in members if cell["reference"]), members[0])
        base = _flat(reference.get("config") or {})
        for cell in members:
            own = _flat(cell.get("config") or {})
            changed = [key for key in {**base, **own} if base.get(key, "–") != own.get(key, "–")]
            rows += [[cell["label"], key, base.get(key, "–"), own.get(key, "–")] for key in changed]
    return rows


def common(manifest: dict[str, Any]) -> Rows:
    """Settings that all cells share, with their value."""
    settings = [_flat(cell.get("config") or {}) for cell in manifest["cells"]]
    return [[key, text] for key, text in settings[0].items() if all(each.get(key) == text for each in settings)]


def _flat(node: Any, above: str = "") -> dict[str, str]:
    """Settings by their dotted names, values as they are typed."""
    if not isinstance(node, dict) or not node:
        return {above: _typed(node)} if above else {}
    return {name: text for key, value in node.items() for name, text in _flat(value, f"{above}.{key}" * bool(above) or str(key)).items()}


def _typed(value: Any) -> str:
    return f"[{', '.join(map(_typed, value))}]" if isinstance(value, list) else words.show(value)
