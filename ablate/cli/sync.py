"""ablate sync [STUDY]: replays a study's runs to its tracking service, each once."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ablate.config.arguments import user_of
from ablate.config.errors import Corrupt, Refused
from ablate.execution.tracking.mirror import Mirror, say
from ablate.format.streams import exit_with
from ablate.results.manifest import newest_study, read_manifest
from ablate.results.run import Run


def main(arguments: list[str] | None = None) -> int:
    """Replay a study, the newest by default; 2 and one line where there is none that can be read."""
    parser = argparse.ArgumentParser(prog="ablate sync", description="Replay a study to its tracking service")
    said = "default: the newest; user=[my_package] for a tracking service of your own"
    parser.add_argument("words", nargs="*", metavar="STUDY|user=[PACKAGE]", help=said)
    parser.add_argument("--results-dir", type=Path, default=os.environ.get("ABLATE_RESULTS", "results"))
    options = parser.parse_intermixed_args(arguments)
    try:
        names, user = user_of(options.words)
        if len(names) > 1:
            raise Refused(f"{' and '.join(names)} are several; write one")
        print("\n".join(_replay_study(options.results_dir, names[0] if names else None, user)))
    except (Refused, Corrupt, OSError) as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _replay_study(results: Path, name: str | None, user: list[str]) -> list[str]:
    """Replay a study, the newest without a name, and say what came of it.  Raises Refused, Corrupt and OSError."""
    study = name or newest_study(results)
    try:
        if study is None:
            raise FileNotFoundError
        runs = read_manifest(results, study).runs
        return _replay(Mirror(results, study, user), [run.path for run in runs])
    except FileNotFoundError:
        known = sorted(path.parent.name for path in results.glob("studies/*/manifest.json"))
        raise Refused(f"no study {study or ''} in {results}; there are {', '.join(known) or 'none'}") from None


def _replay(mirror: Mirror, paths: list[str]) -> list[str]:
    with mirror.lock() as lock:
        if not mirror.take(lock, wait=False):
            return [f"{mirror.study}: a mirror is at work on it already"]
        now = mirror.replay()
        mirror.close()
    sinks = [sink for sink in mirror.sinks.values() if sink]
    if not sinks:
        return [f"{mirror.study}: none of its runs has a tracking service"]
    going = sum(not Run(mirror.results, path).result_file.exists() for path in paths)
    before = len({mark[0] for mark in mirror.replayed} & set(paths)) - now
    where = " and ".join(sorted(f"{sink.name} ({sink.mode})" for sink in sinks))
    lines = [f"{mirror.study} to {where}: {now} replayed now, {before} before, {going} not ended"]
    if any(sink.mode == "offline" for sink in sinks):
        lines.append(f"upload: wandb sync {mirror.results / 'wandb'}/offline-run-*")
    return lines


if __name__ == "__main__":
    exit_with(main)
