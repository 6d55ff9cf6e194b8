"""ablate sync [STUDY]: replays a study's runs to its tracking services, each once."""

import importlib

from ablate.config.subcommands import Outcome, Parser, conclude, one_name, user_of
from ablate.execution.tracking.mirror import Mirror
from ablate.results.manifest import choose_study, manifest_of
from ablate.results.run import Run


def main(arguments: list[str] | None = None) -> int:
    """Replay a study (default: the newest) and print the outcome; returns the exit code."""
    parser = Parser("ablate sync", "Replay a study to its tracking services.")
    usage = "default: the newest; user=[my_package] for a tracking service of your own"
    parser.add_argument("words", nargs="*", metavar="STUDY|user=[PACKAGE]", help=usage)
    parser.add_argument("--dashboard", action="store_true", help="then what ablate dashboard does")
    given = parser.parse_intermixed_args(arguments)

    def act() -> Outcome:
        names, user = user_of(given.words)
        study = choose_study(given.results_dir, one_name(names))
        runs = manifest_of(given.results_dir, study).runs
        lines = replay(Mirror(given.results_dir, study, user), [run.path for run in runs])
        print("\n".join(lines), flush=True)
        if given.dashboard:
            made = importlib.import_module("analysis.dashboard.main").dashboard(given.results_dir, study)
            lines += made.result["lines"]
        return Outcome(0, {"study": study, "lines": lines})

    return conclude(parser.prog, given.json, act)


def replay(mirror: Mirror, paths: list[str]) -> list[str]:
    """Replay the parts of runs that the study's tracking services lack; returns lines that describe the outcome."""
    if not mirror.take(wait=False):
        return [f"{mirror.study}: another process is uploading it already"]
    earlier = set(mirror.replayed)
    mirror.replay()
    mirror.close()
    sinks = sorted({(sink.name, sink.mode) for sink in mirror.sinks.values() if sink})
    if not sinks:
        return [f"{mirror.study}: none of its runs has a tracking service"]
    going = sum(not Run(mirror.results, path).result_file.exists() for path in paths)
    lines = []
    for name, mode in sinks:
        now = {mark.path for mark in mirror.replayed - earlier if mark.sink == name}
        before = len({mark.path for mark in earlier if mark.sink == name} & set(paths) - now)
        lines.append(f"{mirror.study} to {name} ({mode}): {len(now)} uploaded now, {before} before, {going} not ended")
    if ("wandb", "offline") in sinks:
        lines.append(f"upload: wandb sync {mirror.results / 'wandb'}/offline-run-*")
    if ("tensorboard", "online") in sinks:
        lines.append(f"see: tensorboard --logdir {mirror.results / 'tensorboard' / mirror.study}")
    return lines
