"""Trains the study files of `experiments/` one after another, and writes the tables of complete studies.

    make studies STUDIES="batch_norm qk_norm tier=gpu"
    python tools/train_studies.py [NAME ...] [KEY=VALUE ...] [--to FOLDER] [--config-dir DIR]

Without names: all studies whose tables are missing or were written for another version of the study file.
Each runs as a separate command, `ablate +experiment=NAME KEY=VALUE ...`; after an interruption the same command
continues.  A study that is refused or has failed runs does not stop the others.

Exit codes: 0 all are complete; 1 some study was refused or has failed runs; 2 no such study file; 130 Ctrl-C;
143 SIGTERM.
"""

import argparse
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from common import by_value

from ablate import evidence
from ablate.cli.main import exit_after_training
from ablate.cli.sweep import DONE, FAILED, INTERRUPTED, TERMINATED, WRONG
from ablate.config.choices import parse_value
from ablate.config.command import Command, read_command
from ablate.config.errors import Corrupt
from ablate.config.groups import read_groups
from ablate.config.import_path import program
from ablate.evidence.claims import verdicts_to_store
from ablate.execution.signals import Terminated
from ablate.execution.train_run import git
from ablate.formatting import instead
from ablate.planning.earlier_runs import register, registered
from ablate.planning.runs import is_hydras
from ablate.runs.kept_tables import INDEX, MANIFEST, VERDICTS, portable, read_tables, write_tables, write_verdicts
from ablate.runs.manifest import manifest_in
from ablate.runs.records import Manifest
from ablate.runs.study import Study, load_study

TABLES = Path("experiments") / "results"
ENDED = ("done", "diverged")
# Digests of study files that were respelt since their studies were trained, and those that the manifests hold.
RESPELT = {
    "99d4489acaae38e3": "673eff11e105baee",  # catalogue
    "67036b5b618189b4": "9f26b1d826e634a1",  # catalogue_size
    "941a16830dd1ac24": "7407ec7e6a0124f9",  # catalogue_tuned
}
ENDINGS = {WRONG: "refused", FAILED: "failed: some run is without a number"}
STOPPED = (INTERRUPTED, TERMINATED, -signal.SIGINT, -signal.SIGTERM)  # negative: before its handlers were installed


class Request(NamedTuple):
    """What all studies have in common: additional words, the user's folder, and the folder of tables."""

    words: list[str]
    config_dir: str | None
    tables: Path

    @property
    def results(self) -> Path:
        """The results folder of the commands."""
        return Path(last_value(self.words, "results_dir") or os.environ.get("ABLATE_RESULTS", "results"))

    def command(self, name: str) -> list[str]:
        """The arguments of the command that trains a study."""
        folder = ["--config-dir", self.config_dir] if self.config_dir else []
        return [*folder, f"+experiment={name}", *self.words]

    def kept(self, name: str) -> Path | None:
        """The folder of a study's complete tables, if they are for the current study file; else None."""
        now = self.read(name).digest
        if not now:  # the file cannot be read, which its command reports
            return None
        for folder in sorted(file.parent for file in self.tables.glob(f"*/{MANIFEST}")):
            with contextlib.suppress(OSError, Corrupt):
                asks = manifest_in(folder / MANIFEST).asks
                if asks in (now, RESPELT.get(now)) and read_tables(folder).runs["status"].isin(ENDED).all():
                    return folder
        return None

    def read(self, name: str) -> Command:
        """Parse the command that trains a study."""
        words = [word for word in self.words if not is_hydras(word)]
        return read_command([f"+experiment={name}", *words], self.config_dir)[0]


def last_value(words: list[str], key: str) -> str | None:
    """The value of the last of these overrides that sets a key, or None."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"{key}=")]
    return str(parse_value(values[-1])) if values else None


def main(arguments: list[str] | None = None) -> int:
    """Train studies (default: all without tables) and print the outcome of each; returns the exit code."""
    parser = argparse.ArgumentParser(description="Train study files, and write the tables of what is complete.")
    parser.add_argument("words", nargs="*", metavar="NAME|KEY=VALUE", help="study files, and keys for each of them")
    parser.add_argument("--to", default=TABLES, type=Path, metavar="FOLDER", help="of the tables")
    parser.add_argument("--config-dir", metavar="DIR", help="your own variants, and study files in its experiment/")
    options = parser.parse_intermixed_args(arguments)
    names = [word for word in options.words if "=" not in word]
    folder = options.config_dir and os.path.abspath(options.config_dir)
    request = Request([word for word in options.words if word not in names], folder, options.to)
    studies = read_groups(folder).studies
    for name in names:
        if name not in studies:
            parser.error(f"{name}: no such study file; {instead(name, studies)}")
    todo = list(dict.fromkeys(names)) or by_value(studies)
    lines: dict[str, str] = {}
    if not names:  # of all, those without tables are trained
        for name in todo:
            tables = request.kept(name)
            if tables:
                lines[name] = f"complete; tables in {tables}"
    code = DONE
    for name in todo:
        if name in lines:
            continue
        print(f"{name}:", file=sys.stderr, flush=True)
        ended = train(request.command(name))
        if ended in STOPPED:
            code = INTERRUPTED if ended in (INTERRUPTED, -signal.SIGINT) else TERMINATED
            break
        lines[name] = ENDINGS.get(ended) or tables_of(name, request)
        code = FAILED if ended else code
    for name in todo:
        print(f"{name}: {lines.get(name, 'not complete')}", flush=True)
    return code


def train(words: list[str]) -> int:
    """Run a command in a subprocess, to which signals are passed on; returns its exit code."""
    sys.stdout.flush()
    with subprocess.Popen([*program("ablate.cli.main"), *words]) as process:
        try:
            process.wait()
        except (KeyboardInterrupt, Terminated) as stop:
            process.send_signal(signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
            process.wait()
    return process.returncode


def tables_of(name: str, request: Request) -> str:
    """Write the tables of a study, if its command, which ended well, has trained it; returns its outcome."""
    study = request.read(name).settings["study"].value
    assert study
    if (count := last_value(request.words, "confirm") or "None") != "None":
        study = f"{study}-confirm-{count}"
    try:
        trained = load_study(request.results, study)
    except FileNotFoundError:  # of a dry run
        return "planned"
    if not trained.runs["status"].isin(ENDED).all():
        return "planned"
    folder = request.tables / study
    keep(with_history(trained, folder), folder)
    return f"complete; tables in {folder}"


def keep(study: Study, folder: Path) -> None:
    """Write the tables of a study, and how its claims are judged unless the same tables were judged before."""
    before = contents(folder / INDEX)
    write_tables(study, folder)
    if contents(folder / INDEX) == before and (folder / VERDICTS).exists():
        return
    claims = evidence.claims(study)
    if len(claims):
        code = git()
        commit = str(code.commit)[:8] if code else "unknown"
        write_verdicts(verdicts_to_store(study.manifest, claims, commit), folder)
    else:
        (folder / VERDICTS).unlink(missing_ok=True)


def contents(file: Path) -> bytes | None:
    """The content of a file; None without one."""
    return file.read_bytes() if file.exists() else None


def with_history(study: Study, folder: Path) -> Study:
    """A study to replace its tables in a folder: results that these had shown count as seen.  If only the time has
    changed, the old time is kept, so that the files stay the same."""
    beside = {role: with_history(other, folder / role) for role, other in study.beside.items()}
    manifest = portable(study.manifest)
    with contextlib.suppress(OSError, Corrupt):
        earlier = manifest_in(folder / MANIFEST)
        manifest = carry_over(manifest, earlier)
        if dataclasses.replace(manifest, updated=earlier.updated) == earlier:
            manifest = earlier
    return dataclasses.replace(study, manifest=manifest, beside=beside)


def carry_over(manifest: Manifest, earlier: Manifest) -> Manifest:
    """A manifest with claims and looks carried over from the manifest in earlier tables of the same cells.

    A study retrained without its results folder does not know them: a claim edited after seeing the tables would count
    as registered, and seeds would be added without a look.
    """
    cells = {cell.id for cell in manifest.cells}
    seen: dict[int, set[str]] = {}
    named = {str(cell.levels): cell.id for cell in manifest.cells}  # by levels: ids change with what goes into keys
    ids = {cell.id: named.get(str(cell.levels), cell.id) for cell in earlier.cells}
    for run in earlier.runs:  # in tables, all runs have ended
        seen.setdefault(run.seed, set()).add(ids[run.cell])
    if not any(len(cells & ended) > 1 for ended in seen.values()):
        return manifest
    now = {name: entry.claim for name, entry in manifest.claims.items()}
    registry = register(now, earlier.withdrawn | earlier.claims, manifest.cells, seen, manifest.created)
    claims = {name: registry["claims"][name] if entry.registered else entry for name, entry in manifest.claims.items()}
    withdrawn = registry["withdrawn"] | manifest.withdrawn
    criterion = manifest.replicated
    if criterion is None or criterion.registered:
        criterion = registered(criterion and criterion.value, earlier.replicated, seen, manifest.created)
    looks = [*(look for look in earlier.looks if look not in manifest.looks), *manifest.looks]
    return dataclasses.replace(manifest, replicated=criterion, claims=claims, withdrawn=withdrawn, looks=looks)


if __name__ == "__main__":
    exit_after_training(main)
