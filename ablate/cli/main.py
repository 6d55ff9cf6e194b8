"""`ablate [-m] key=value ...` or `ablate status ...`: chooses the command and its exit code.

Exit codes of a study: 0 every run ended with a result, 1 some run failed, 2 the command line was wrong and nothing was
trained, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Collection
from pathlib import Path

import yaml

from ablate import __version__
from ablate.config.errors import PlanError, Problem
from ablate.config.groups import description, experiments, groups
from ablate.config.import_path import drop_current_folder_from_path, find_packages_here
from ablate.config.subcommands import Outcome, PlainParser, conclude
from ablate.config.unknown_keys import instead_of_word
from ablate.execution.signals import handling_signals, ignore_signals
from ablate.formatting import instead
from ablate.formatting.streams import echo, exit_with

COMMANDS = {
    "analyse": "analysis.cli.main",
    "audit": "ablate.cli.audit",
    "clean": "ablate.cli.clean",
    "command": "ablate.cli.program",
    "dashboard": "analysis.dashboard",
    "data": "ablate.cli.data",
    "status": "ablate.cli.status",
    "studies": "ablate.cli.studies",
    "sync": "ablate.cli.sync",
    "watch": "analysis.cli.watch",
}
ALIASES = {"analyze": "analyse"}
# What people try in place of a command, with what to write.
TRIED = {
    "train": "to train write ablate -m norm=ln,rms",
    "run": "to train write ablate -m norm=ln,rms",
    "plan": "to see a plan write ablate -m norm=ln,rms dry_run=true",
}


def main(*first: str) -> None:
    """Run the command line, with `first` before its words, and exit with one of the exit codes above."""
    words = [*first, *sys.argv[1:]]
    drop_current_folder_from_path()
    user = " ".join(word.partition("=")[2] for word in words if word.lstrip("+").startswith("user="))
    find_packages_here(re.findall(r"[\w.]+", user))  # packages, which are validated later
    name = ALIASES.get(words[0], words[0]) if words else ""
    if name in ("audit", "command"):
        exit_after_training(lambda: importlib.import_module(COMMANDS[name]).main(words[1:]))
    if name in COMMANDS:
        exit_with(lambda: importlib.import_module(COMMANDS[name]).main(words[1:]))
    exit_after_training(lambda: command(words))


def exit_after_training(act: Callable[[], int]) -> None:
    """Exit with the code of a command that trains: signals end it early."""

    def trained() -> int:
        try:
            with handling_signals():
                code = act()
                ignore_signals()
                return code
        except KeyboardInterrupt:
            return 130
        finally:  # also after Terminated, which is a SystemExit
            ignore_signals()

    exit_with(trained)


def command(words: list[str]) -> int:
    """Print the version, help or a configuration, or run a study; returns the exit code."""
    parser = PlainParser("ablate", "", add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir", action="append")
    parser.add_argument("-c", "--cfg")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    options, unknown = parser.parse_known_intermixed_args(words)
    if options.version:
        echo(f"ablate {__version__}")
        return 0
    is_empty = not (options.words or unknown or options.cfg)  # a bare `ablate` trains nothing
    if is_empty or options.help or options.words[:1] == ["help"]:
        return conclude("ablate", options.json, lambda: show_help(options))
    return conclude("ablate", options.json, lambda: study(options, unknown))


def study(options: Namespace, unknown: list[str]) -> Outcome:
    """Print the configuration (--cfg) or a dry run, or train.  `unknown` are no options of ours.  Raises PlanError."""
    from ablate import api
    from ablate.cli.plan_progress import showing_progress

    problem = misplaced(options, unknown)
    if problem:
        raise PlanError([Problem(*problem)])
    folder = options.config_dir[0] if options.config_dir else None
    if options.cfg:
        return show_configuration(options.words, folder, options.cfg)
    with showing_progress():
        plan = api.plan(options.words, folder)
        from ablate.cli.sweep import dry_run, expected_cost, sweep  # loads pandas

        time = expected_cost(plan) if plan.dry_run else ""
    return dry_run(plan, time) if plan.dry_run else sweep(plan)


def misplaced(options: Namespace, unknown: list[str]) -> tuple[str, str] | None:
    """A word that is no key=value and no option, or an option written twice, and what to write instead."""
    if unknown:
        option = unknown[0].partition("=")[0]
        return option, f"no such option; {instead_of_word(option)}"
    for word in options.words:
        if word.startswith("="):
            return word, "stands alone; write key=value without spaces around =, as in norm=ln,rms"
    if options.words and re.fullmatch(r"\w[\w-]*", options.words[0]):
        word = options.words[0]
        return word, f"no such command; {TRIED.get(word) or instead_of_word(word, commands=COMMANDS)}"
    if options.config_dir and options.config_dir[1:]:
        return "--config-dir", "is given twice; there is one folder of your own variants"
    return None


def show_configuration(words: list[str], folder: str | None, part: str) -> Outcome:
    """Print a part of the configuration, as `--cfg` does.  Raises PlanError."""
    from ablate.planning.plan import configuration_as_yaml

    text = configuration_as_yaml(words, folder, part)
    echo(text.rstrip())
    return Outcome(0, yaml.safe_load(text))


def show_help(options: Namespace) -> Outcome:
    """Print the help.  Raises PlanError."""
    asked = [word.partition("=")[0] for word in options.words if word != "help"]
    text = help_text(options.config_dir[0] if options.config_dir else None, asked)
    echo(text)
    return Outcome(0, text)


def help_text(folder: str | None, asked: Collection[str] = ()) -> str:
    """Usage, the variants of every group, and the keys; of groups that are `asked` for, each variant's first line.
    Raises PlanError for a word that is no group."""
    variants = groups(folder) | {"+experiment": experiments(folder)}
    if asked:
        return described(variants, asked)
    wide = textwrap.TextWrapper(110, subsequent_indent=" " * 18, break_on_hyphens=False)
    lines = [wide.fill(f"  {group:<16}{', '.join(variants[group])}") for group in variants]
    text = Path(__file__).with_name("help.txt").read_text("utf-8")
    return text.replace("<groups>", "\n".join(lines)).rstrip()


def described(variants: dict[str, dict[str, Path]], asked: Collection[str]) -> str:
    """The groups that are asked for, with the first line of each variant.  Raises PlanError."""
    names = {group.lstrip("+"): group for group in variants}
    wanted = set()
    for word in asked:
        name = word.lstrip("+")
        if name not in names:
            raise PlanError([Problem(f"help {word}", f"no such group; {instead(name, names)}")])
        wanted.add(names[name])
    lines = []
    for group in variants:
        if group in wanted:
            lines.append(group)
            lines += [f"  {name:<15} {description(file)}" for name, file in variants[group].items()]
    return "\n".join(lines)
