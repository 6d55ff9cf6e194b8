"""Settings that all cells of a study share."""

from __future__ import annotations

from ablate.results.records import Manifest
from analysis.writing.sections import settings
from analysis.writing.sheet import Sheet


def common(manifest: Manifest) -> Sheet:
    """The settings that are equal in all resolved configurations, with their values."""
    first, *others = settings(manifest)
    shared = [[key, text] for key, text in first.items() if all(each.get(key) == text for each in others)]
    return Sheet("shared", f"Settings that all cells share ({len(shared)})", ["setting", "value"], shared, [])
