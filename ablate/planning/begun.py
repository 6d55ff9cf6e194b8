"""What a study was begun with: choices that were measured once, which whoever continues it takes over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ablate.config.errors import Corrupt
from ablate.planning.rounds.tuning_seeds import tuning_name
from ablate.planning.study import CheckedStudy
from ablate.results.manifest import read_manifest
from ablate.results.records import Manifest


def begun(study: CheckedStudy) -> Iterator[Manifest]:
    """The manifests that there are of a study and of its rounds: it may have been begun with any of them."""
    for name in names(study):
        with contextlib.suppress(OSError, Corrupt, ValueError):
            yield read_manifest(study.results, name)


def damaged(study: CheckedStudy) -> Iterator[str]:
    """What is wrong with those of them that cannot be read."""
    for name in names(study):
        try:
            read_manifest(study.results, name)
        except FileNotFoundError:
            continue
        except (OSError, Corrupt) as error:
            yield str(error)


def names(study: CheckedStudy) -> list[str]:
    """The names of a study and of its rounds."""
    return [study.name, study.base, f"{tuning_name(study)}-tune", f"{study.base}-aa"]
