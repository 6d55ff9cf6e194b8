"""Which study of a results folder is meant."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ablate.config.errors import Corrupt, Refused
from ablate.formatting.suggest import instead
from ablate.results.manifest import newest_study, read_manifest, study_folder
from ablate.results.records import Manifest


def studies(results: Path) -> list[str]:
    """Names of the studies on disk."""
    return sorted(path.parent.name for path in (results / "studies").glob("*/manifest.json"))


def choose_study(results: Path, name: str | None, more: Iterable[str] = ()) -> str:
    """The study called `name`, which may be one of `more`, too; the newest one without a name.  Raises Refused."""
    if not results.is_dir():
        raise Refused(f"no results folder at {results}: run a sweep first, or name the folder with --results-dir")
    newest = newest_study(results)
    if newest is None:
        raise Refused(f"no study in {results}: run a sweep first, or name another folder with --results-dir")
    there = sorted({*studies(results), *more})
    if name is None or name in there:
        return name or newest
    raise Refused(f"no study {name} in {results}: {instead(name, there)}")


@contextlib.contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """What reading the manifest in a study's folder, and its results, raises becomes `Refused`."""
    manifest = folder / "manifest.json"
    try:
        yield
    except Corrupt as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{manifest} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{manifest}, or a result of its runs, is damaged ({type(error).__name__}: {error})") from None


def manifest_of(results: Path, study: str) -> Manifest:
    """A study's manifest.  Raises Refused."""
    with refusing(study_folder(results, study)):
        return read_manifest(results, study)
