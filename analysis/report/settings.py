"""Settings that all cells of a study share."""

from __future__ import annotations

from typing import Any

from analysis.sections import STUDY_KEYS, flattened
from analysis.sheet import Sheet


def common(manifest: dict[str, Any]) -> Sheet:
    """The settings that are equal in all resolved configurations, with their values."""
    settings = [
        flattened({k: v for k, v in cell["config"].items() if k not in STUDY_KEYS}) for cell in manifest["cells"]
    ]
    shared = [[key, text] for key, text in settings[0].items() if all(each.get(key) == text for each in settings)]
    return Sheet("shared", f"Settings that all cells share ({len(shared)})", ["setting", "value"], shared, [])
