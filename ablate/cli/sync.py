"""ablate sync [STUDY]: sends what a study's tracking services lack, each run once."""

import importlib

from ablate.config.subcommands import Outcome, Parser, conclude, one_name, user_of
from ablate.execution.tracking.sender import Sender
from ablate.formatting.streams import echo
from ablate.runs.folder import Run
from ablate.runs.manifest import choose_study, manifest_of


def main(arguments: list[str] | None = None) -> int:
    """Send a study's runs (default: the newest's) and print the outcome; returns the exit code."""
    parser = Parser("ablate sync", "Send a study's runs to its tracking services.")
    usage = "default: the newest; user=[my_package] for a tracking service of your own"
    parser.add_argument("words", nargs="*", metavar="STUDY|user=[PACKAGE]", help=usage)
    parser.add_argument("--dashboard", action="store_true", help="then what ablate dashboard does")
    options = parser.parse_intermixed_args(arguments)

    def act() -> Outcome:
        names, user = user_of(options.words)
        study = choose_study(options.results_dir, one_name(names))
        runs = manifest_of(options.results_dir, study).runs
        lines = send(Sender(options.results_dir, study, user), [run.path for run in runs])
        echo("\n".join(lines))
        if options.dashboard:
            dashboard = importlib.import_module("analysis.dashboard").dashboard
            lines += dashboard(options.results_dir, study).result["lines"]
        return Outcome(0, {"study": study, "lines": lines})

    return conclude(parser.prog, options.json, act)


def send(sender: Sender, paths: list[str]) -> list[str]:
    """Send what the study's services lack; returns a line for each service."""
    if not sender.lock():
        return [f"{sender.study}: another process is uploading it already"]
    sender.send_all()
    sender.close()
    if not sender.trackers:
        return [f"{sender.study}: none of its runs has a tracking service"]
    running = sum(not Run(sender.results, path).result_file.exists() for path in paths)
    lines = []
    for key, tracker in sender.trackers.items():
        now = sender.count[key]
        before = sum(path in sender.sent.get(key, {}) for path in paths) - now
        counts = f"{now} uploaded now, {before} before, {running} not ended"
        lines.append(f"{sender.study} to {tracker.name} ({tracker.mode}): {counts}")
    return lines
