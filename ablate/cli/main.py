"""`ablate [-m] key=value ...` or `ablate status ...`: chooses the command and its exit code.

Exit codes of a study: 0 every run ended with a result, 1 some run failed, 2 the command line was wrong and nothing was
trained, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ablate import __version__
from ablate.config.import_path import find_here, leave_current_folder
from ablate.execution.signals import handling_signals, ignore_signals
from ablate.formatting.streams import exit_with

if TYPE_CHECKING:
    from argparse import Namespace

    from ablate.config.subcommands import Outcome

ORDER: tuple[str, ...] = ("norm", "ffn", "residual", "position", "attention", "init")  # order of groups in --help
ORDER += ("model", "data", "scale", "optim", "track", "preset")
COMMANDS = {name: f"ablate.cli.{name}" for name in ("status", "clean", "sync", "data")}
COMMANDS |= {"analyse": "analysis.cli.main", "studies": "ablate.cli.studies", "dashboard": "analysis.dashboard.main"}
COMMANDS |= {"watch": "analysis.cli.watch"}


def main(*first: str) -> None:
    """Run the command line, with `first` before its words, and exit with one of the exit codes above."""
    words = [*first, *sys.argv[1:]]
    leave_current_folder()
    user = " ".join(word.partition("=")[2] for word in words if word.lstrip("+").startswith("user="))
    find_here(re.findall(r"[\w.]+", user))  # packages, which are validated later
    if words and words[0] in COMMANDS:
        exit_with(lambda: importlib.import_module(COMMANDS[words[0]]).main(words[1:]))
    exit_after_training(lambda: command(words))


def exit_after_training(act: Callable[[], int]) -> None:
    """Exit with the code of a command that trains: signals end it early, a closed pipe does not."""

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

    exit_with(trained, raises=False)


def command(words: list[str]) -> int:
    """Print the version, help or a configuration, or run a study; returns the exit code."""
    from ablate.config.subcommands import Outcome, PlainParser, conclude

    parser = PlainParser("ablate", "", add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-cd", "--config-dir", action="append")
    parser.add_argument("-c", "--cfg")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    given, others = parser.parse_known_intermixed_args(words)
    if given.version:
        print(f"ablate {__version__}")
        return 0
    nothing = not (given.words or others or given.cfg)  # a bare `ablate` trains nothing
    if nothing or given.help or given.words[:1] == ["help"]:
        asked = [word for word in given.words if word != "help" and "=" not in word]

        def shown() -> Outcome:
            text = help_text((given.config_dir or [None])[0], asked)
            print(text)
            return Outcome(0, text)

        return conclude("ablate", given.json, shown)
    return conclude("ablate", given.json, lambda: study(given, words, others))


def study(given: Namespace, words: list[str], others: list[str]) -> Outcome:
    """Print the configuration (--cfg) or a dry run, or train; `others` are no options of ours.  Raises PlanError."""
    from ablate import api
    from ablate.cli.sweep import dry_run, sweep
    from ablate.config.errors import PlanError, Problem
    from ablate.config.key_checks import TAKEN, suggestion
    from ablate.config.removed import removed
    from ablate.config.subcommands import Outcome

    if words and (gone := removed(f"ablate {words[0]}")):
        raise PlanError([Problem(words[0], gone)])
    if others:
        option, _, value = others[0].partition("=")
        [after, *_] = [*words[words.index(others[0]) + 1 :], "-"]
        value = value or after * (not re.match("-|.*=", after))
        raise PlanError([Problem(option, f"no such option; {suggestion(option.strip('-').replace('-', '_'), value)}")])
    if spaced := next((word for word in given.words if word.startswith("=")), None):
        raise PlanError([Problem(spaced, "stands alone; write key=value without spaces around =, as in norm=ln,rms")])
    if given.words and re.fullmatch(r"\w[\w-]*", given.words[0]):
        spelt = {name: name for name in COMMANDS} | {name: f"analyse {name}" for name in TAKEN}
        raise PlanError([Problem(given.words[0], f"no such command; {suggestion(given.words[0], choices=spelt)}")])
    folder, *more = given.config_dir or [None]
    if more:
        raise PlanError([Problem("--config-dir", "is given twice; there is one folder of your own variants")])
    if given.cfg:
        from ablate.planning.plan import configuration_of

        print(configuration_of(given.words, folder, given.cfg), end="")
        return Outcome(0)
    plan = api.plan(given.words, folder)
    return dry_run(plan) if plan.dry_run else sweep(plan)


def help_text(folder: str | None, asked: Collection[str] = ()) -> str:
    """Usage, the variants of every group, and the keys; of groups that are `asked` for, each variant's first line.
    Raises PlanError for a word that is no group."""
    from ablate.config.errors import PlanError, Problem
    from ablate.config.groups import description, experiments, groups, named_elsewhere
    from ablate.formatting import instead

    found = groups(folder) | {"+experiment": experiments(folder)}
    order = sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    names = [group.lstrip("+") for group in order]
    also = {other: name for other, name in named_elsewhere().items() if name in names}
    if lost := [word for word in asked if word.lstrip("+") not in names]:
        other = f"is a command; write ablate {lost[0]} --help" if lost[0] in COMMANDS else ""
        raise PlanError([Problem(f"help {lost[0]}", other or f"no such group; {instead(lost[0], names, also)}")])
    if known := [group for group in order if group in asked or group.lstrip("+") in asked]:
        rows = {group: [f"  {name:<15} {description(file)}" for name, file in found[group].items()] for group in known}
        return "\n".join("\n".join([group, *rows[group]]) for group in known)
    wide = textwrap.TextWrapper(110, subsequent_indent=" " * 18, break_on_hyphens=False)
    wrapped = (wide.fill(f"  {group:<16}{', '.join(found[group])}") for group in order)
    return Path(__file__).with_name("help.txt").read_text("utf-8").replace("<groups>", "\n".join(wrapped)).rstrip()
