"""Trains the study files of `experiments/` one after another, and writes the tables of complete studies.

    ablate studies [NAME ...] [tier=gpu] [KEY=VALUE ...] [--to FOLDER] [--config-dir DIR]

Without names: all studies whose tables are missing or were written for another version of the study file.
Each runs as a separate command, `ablate +experiment=NAME KEY=VALUE ...`; after an interruption the same command
continues.  A study that is refused or has failed runs does not stop the others.

Exit codes: 0 all are complete; 1 some study was refused or has failed runs; 2 the command line was wrong; 130 Ctrl-C;
143 SIGTERM.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

from ablate.cli.status import base_of, progress, readable, rounds_of, together
from ablate.cli.sweep import DONE, FAILED, INTERRUPTED, TERMINATED, WRONG
from ablate.config.command import Command, key_of, read_command
from ablate.config.errors import Corrupt, Refused, first_line
from ablate.config.groups import by_value
from ablate.config.overrides import parsed
from ablate.config.subcommands import Outcome as Result
from ablate.config.subcommands import PlainParser, conclude
from ablate.execution.fork import program
from ablate.execution.signals import Terminated
from ablate.formatting import instead
from ablate.planning.earlier_runs import register, registered_criterion, registered_margin
from ablate.planning.runs import is_hydras
from ablate.results.kept_tables import MANIFEST, anywhere, read_tables, write_tables
from ablate.results.manifest import manifest_in, studies
from ablate.results.records import Manifest
from ablate.results.study import Study, load_study

TABLES = Path("experiments") / "results"
ENDINGS = {INTERRUPTED: KeyboardInterrupt, TERMINATED: Terminated}
ENDINGS |= {-signal.SIGINT: KeyboardInterrupt, -signal.SIGTERM: Terminated}  # before its handlers were installed
ENDED = ("done", "diverged")
REFUSED = "refused: "
READING = 5.0  # seconds to wait for a command's last messages


class Request(NamedTuple):
    """What all studies have in common: additional words, the user's folder, and the folder of tables."""

    words: list[str]
    config_dir: str | None
    tables: Path

    @property
    def results(self) -> Path:
        """The results folder of the commands."""
        given = [word for word in self.words if key_of(word) == "results_dir"]
        return Path(str(parsed(given[-1]).value()) if given else os.environ.get("ABLATE_RESULTS", "results"))

    def command(self, name: str) -> list[str]:
        """The arguments of the command that trains a study."""
        folder = ["--config-dir", self.config_dir] if self.config_dir else []
        return [*folder, f"+experiment={name}", *self.words]

    def kept(self, name: str) -> Path | None:
        """The folder of a study's complete tables, if they are for the current study file; else None."""
        now = self.read(name).request.kept.get("asks")
        if now is None:  # the file cannot be read, which its command reports
            return None
        for folder in sorted(file.parent for file in self.tables.glob(f"*/{MANIFEST}")):
            with contextlib.suppress(OSError, Corrupt):
                if manifest_in(folder / MANIFEST).asks == now and read_tables(folder).runs["status"].isin(ENDED).all():
                    return folder
        return None

    def read(self, name: str) -> Command:
        """Parse the command that trains a study."""
        return read_command(
            [f"+experiment={name}", *(word for word in self.words if not is_hydras(word))], self.config_dir
        )

    def study(self, name: str) -> str | None:
        """The study on disk that this command last planned or began to tune, or None."""
        typed = self.read(name).typed
        known = filter(None, (readable(self.results, study) for study in studies(self.results)))
        found = [manifest for manifest in known if manifest.command == typed]
        return base_of(max(found, key=lambda manifest: manifest.updated)) if found else None


class Outcome(NamedTuple):
    """The outcome of a study in one line."""

    message: str
    complete: bool = False


def main(arguments: list[str] | None = None) -> int:
    """Train studies (default: all) and print the outcome of each; returns the exit code."""
    parser = PlainParser("ablate studies", "Train study files, and write the tables of what is complete.")
    usage = "study files (default: all without tables), and keys for each of them, such as tier=gpu or dry_run=true"
    parser.add_argument("words", nargs="*", metavar="NAME|KEY=VALUE", help=usage)
    parser.add_argument(
        "--to", default=TABLES, type=Path, metavar="FOLDER", help="of the tables (default: %(default)s)"
    )
    parser.add_argument("--config-dir", metavar="DIR", help="your own variants, and study files in its experiment/")
    given = parser.parse_intermixed_args(arguments)
    names = [word for word in given.words if "=" not in word]
    folder = given.config_dir and os.path.abspath(given.config_dir)
    request = Request([word for word in given.words if word not in names], folder, given.to)
    return conclude(parser.prog, given.json, lambda: begin(names, request))


def begin(names: list[str], request: Request) -> Result:
    """Train the named studies, or all without tables."""
    ordered = in_order(names, read_command([], request.config_dir).groups.studies)
    kept = {} if names else {name: folder for name in ordered if (folder := request.kept(name))}
    return train_all(ordered, request, {name: Outcome(f"complete; tables in {kept[name]}", True) for name in kept})


def in_order(names: list[str], known: Iterable[str]) -> list[str]:
    """The studies to train: the named ones in their order, or all in the order of `by_value`.  Raises Refused."""
    known = sorted(known)
    for name in names:
        if name not in known:
            raise Refused(f"{name}: no such study file; {instead(name, known)}")
    return list(dict.fromkeys(names)) or by_value(known)


def train_all(names: list[str], request: Request, outcomes: dict[str, Outcome]) -> Result:
    """Train the studies without an outcome until one is stopped, and print the outcome or progress of each."""
    code, todo, known = DONE, [name for name in names if name not in outcomes], set[str]()
    try:
        for number, name in enumerate(todo, 1):
            print(f"ablate studies: {name}, {number} of {len(todo)}", file=sys.stderr, flush=True)
            outcomes[name] = outcome(name, request, *train(request.command(name), known))
        code = DONE if all(each.complete for each in outcomes.values()) else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Terminated:
        code = TERMINATED
    for name in names:
        if name not in outcomes:  # stopped before its end
            study = request.study(name)
            outcomes[name] = Outcome(progress(together(rounds_of(request.results, study))) if study else "not run")
    lines: dict[str, list[str]] = {}
    for name in names:  # a mistake in several studies is reported once
        message = outcomes[name].message
        lines.setdefault(message if message.startswith(REFUSED) else name, []).append(name)
    for those in lines.values():
        print(f"{', '.join(those)}: {outcomes[those[0]].message}", flush=True)
    ends = [{"study": name, "complete": outcomes[name].complete, "message": outcomes[name].message} for name in names]
    return Result(code, ends)


def train(words: list[str], known: set[str]) -> tuple[int, str]:
    """Run a command in a subprocess; returns its exit code and its last message.

    Lines in `known`, for which earlier commands were refused, are not printed again; its own are added to them.
    A signal is passed on and raised after the command has ended, also one that only the command received.
    """
    sys.stdout.flush()
    messages = [""]
    command = [*program("ablate.cli.main"), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr

        def pass_on(stream: IO[str]) -> None:
            for line in stream:
                message = line.removeprefix("ablate: ").rstrip()
                if message == line.rstrip() or message not in known:
                    print(line, end="", file=sys.stderr, flush=True)
                messages.extend([message] * line.startswith("ablate: "))

        reader = threading.Thread(target=pass_on, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            process.wait()
        except (KeyboardInterrupt, Terminated) as stop:
            process.send_signal(signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
            process.wait()
            raise
        finally:
            reader.join(READING)
    if process.returncode in ENDINGS:
        raise ENDINGS[process.returncode]
    known.update(messages[1:] if process.returncode == WRONG else ())
    return process.returncode, messages[-1]


def outcome(name: str, request: Request, code: int, message: str) -> Outcome:
    """The outcome of a study whose command has ended; writes the tables of a complete one."""
    if code == WRONG:
        return Outcome(f"{REFUSED}{message}")
    study = request.study(name)
    if code != DONE:
        runs = together(rounds_of(request.results, study) if study else [])
        if failed := runs.by_state().get("failed"):
            message = f"{len(failed)} of {len(runs.runs)} runs, {failed[0].name}: {first_line(failed[0].error())}"
        return Outcome(f"failed: {message or f'exit code {code}'}")
    if study is None:
        return Outcome("planned", True)
    folder = request.tables / study
    try:
        write_tables(with_history(load_study(request.results, study), folder), folder)
    except (OSError, Corrupt) as error:
        return Outcome(f"complete, but its tables cannot be written ({error})")
    return Outcome(f"complete; tables in {folder}", True)


def with_history(study: Study, folder: Path) -> Study:
    """A study to replace its tables in a folder: results that these had shown count as seen.  If only the time has
    changed, the old time is kept, so that the files stay the same."""
    beside = {role: with_history(other, folder / role) for role, other in study.beside.items()}
    manifest = anywhere(study.manifest)
    with contextlib.suppress(OSError, Corrupt):
        known = manifest_in(folder / MANIFEST)
        manifest = known_before(manifest, known)
        if dataclasses.replace(manifest, updated=known.updated) == known:
            manifest = known
    return dataclasses.replace(study, manifest=manifest, beside=beside)


def known_before(manifest: Manifest, known: Manifest) -> Manifest:
    """A manifest with claims and looks carried over from the manifest in earlier tables of the same cells.

    A study retrained without its results folder does not know them: a claim edited after seeing the tables would count
    as registered, and seeds would be added without a look.
    """
    cells, seen = {cell.id for cell in manifest.cells}, dict[int, set[str]]()
    for run in known.runs:  # in tables, all runs have ended
        seen.setdefault(run.seed, set()).add(run.cell)
    if not any(len(cells & ended) > 1 for ended in seen.values()):
        return manifest
    now = {name: entry.claim for name, entry in manifest.claims.items()}
    registry = register(now, known.withdrawn | known.claims, manifest.cells, seen, manifest.created)
    claims = {name: registry.claims[name] if entry.registered else entry for name, entry in manifest.claims.items()}
    looks = [look for look in known.looks if look not in manifest.looks]
    withdrawn = registry.withdrawn | manifest.withdrawn
    criterion = manifest.replicated
    if criterion is None or criterion.registered:
        criterion = registered_criterion(criterion and criterion.value, known.replicated, seen, manifest.created)
    looks = [*looks, *manifest.looks]
    margin = registered_margin(manifest.effects and manifest.effects.value, known.effects, seen, manifest.created)
    manifest = dataclasses.replace(manifest, replicated=criterion, effects=margin)
    return dataclasses.replace(manifest, claims=claims, withdrawn=withdrawn, looks=looks)
