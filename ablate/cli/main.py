"""`ablate [-m] key=value ...` or `ablate status ...`: chooses the command and its exit code.

Exit codes of a study: 0 every run ended with a result, 1 some run failed, 2 the command line was wrong and nothing was
trained, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NoReturn

from ablate import __version__
from ablate.config.import_path import find_here, leave_current_folder
from ablate.execution.signals import handling_signals, ignore_signals
from ablate.formatting.streams import exit_with, prepare

if TYPE_CHECKING:
    from argparse import Namespace

    from ablate.config.subcommands import Outcome

USAGE = """\
usage: ablate [-m] [group=variant[,variant...]] [key=value[,value...]] [--config-dir DIR] [--json]
       ablate COMMAND [...]

A comma makes a factor: every combination is trained with every seed, paired, and compared.
  ablate -m norm=ln,rms ffn=mlp,swiglu     a sweep of four cells, five seeds each
  ablate -m norm=ln,rms dry_run=true       what it would train, and what that costs
  ablate -m +preset=llama norm=rms,ln      the same in a published model family
  ablate +experiment=glu_variants          a study file: question, factors, claims

commands (each has --help)
  ablate studies                           studies there are; also: rename OLD NEW, delete NAME, compare A B
  ablate analyse [STUDY]                   figures, tables and a report of the newest study
  ablate status [STUDY] [--watch]          what is done, running, left; and what is not compared
  ablate watch [STUDY]                     the same with curves and verdicts, as a page in the browser
  ablate diff A B                          what differs between two cells or runs
  ablate clean                             what could be removed, and how much space it takes
  ablate evaluate [STUDY]                  kept weights evaluated again, at other lengths too
  ablate sync [STUDY]                      runs replayed to the tracking service
  ablate dashboard [STUDY]                 a view and a report of the study on W&B; sync --dashboard does both
  ablate catalogue                         every variant and its source, as tables
--json, of any command: what it ends with as JSON, for scripts (docs/json.md)
ablate --version; tab completion in bash or zsh: eval "$(register-python-argcomplete ablate)"
"""
KEYS = """\
keys (see conf/config.yaml and conf/scale/ for the values)
  seeds=5 or seeds=[3,7]   replications            confirm=8            a separate study with fresh seeds
  seeds=auto seeds_max=20  more until decided      placebo_seeds=8      placebo runs: the effect of noise
  margin=0.01 or '2 %'     negligible difference   step_equivalents=true effects in training steps
  study=NAME               name of the study       reference={norm:rms} compare with this variant
  design=grid|one_at_a_time|leave_one_out|cumulative|fractional         zip=[model.layers,model.dim] change together
  tune.key=optim.lr tune.values=[1e-3,3e-3] tune.seeds tune.extend      a key tuned for each cell
  model.layers model.heads model.dim model.dropout model.tie_embeddings model.scale_embeddings model.share_layers
  data.context data.path data.tokenizer            eval.tokens eval.val_share eval.lengths
  train.steps train.batch_size train.eval_every train.log_every train.device train.precision train.parallel
  train.diagnostics train.compile train.matmul train.average train.memory
  optim.lr optim.warmup optim.weight_decay optim.betas optim.grad_clip optim.min_lr_ratio
  match=params|flops       match the FFN's width   match=seconds|flops_total     match the number of steps
  timing=isolated          one run at a time, to compare speed
  results_dir=DIR          dry_run=true            keep=weights|all|none         user=[my_package]
  reuse=same|any|none      of runs on disk         allow_duplicates=true         tier=NAME of a study file
--cfg job shows the resolved configuration, --cfg hydra the settings of a launcher."""
ORDER: tuple[str, ...] = ("norm", "ffn", "residual", "position", "attention", "init")  # order of groups in --help
ORDER += ("model", "data", "scale", "optim", "track", "preset")
COMMANDS = {name: f"ablate.cli.{name}" for name in ("status", "diff", "clean", "sync", "evaluate", "catalogue")}
COMMANDS |= {"analyse": "analysis.cli.main", "studies": "ablate.cli.studies", "dashboard": "analysis.dashboard.main"}
COMMANDS |= {"watch": "analysis.cli.watch"}


def main(*first: str) -> None:
    """Run the command line, with `first` before its words, and exit with one of the exit codes above."""
    words = [*first, *sys.argv[1:]]
    leave_current_folder()
    find_here(packages(words))
    if "_ARGCOMPLETE" in os.environ:
        from ablate.cli.completion import complete

        complete(COMMANDS)
    if words and words[0] in COMMANDS:
        exit_with(lambda: importlib.import_module(COMMANDS[words[0]]).main(words[1:]))
    exit_after_training(lambda: command(words))


def packages(words: list[str]) -> list[str]:
    """The packages that `user=` names; they are validated later."""
    values = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("user=")]
    return re.findall(r"[\w.]+", " ".join(values))


def exit_after_training(act: Callable[[], int]) -> NoReturn:
    """Exit with the code of a command that trains: signals end it early, a closed pipe does not."""
    prepare()
    code: Any = 0
    try:
        with handling_signals():
            code = act()
            ignore_signals()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:  # includes Terminated
        code = end.code
    ignore_signals()
    sys.stdout.flush()
    sys.exit(code)


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
    elif given.help or given.words[:1] == ["help"]:
        asked = [word for word in given.words if word != "help" and "=" not in word]

        def shown() -> Outcome:
            print(help_text((given.config_dir or [None])[0], asked))
            return Outcome(0)

        return conclude("ablate", False, shown)
    else:
        return conclude("ablate", given.json, lambda: study(given, words, others))
    return 0


def study(given: Namespace, words: list[str], others: list[str]) -> Outcome:
    """Print the configuration (--cfg) or a dry run, or train a study; `others` are options that there are not.  Raises
    PlanError."""
    from ablate import api
    from ablate.cli.preview import dry_run
    from ablate.cli.sweep import sweep
    from ablate.config.errors import PlanError, Problem
    from ablate.config.key_checks import TAKEN, bare
    from ablate.config.subcommands import Outcome

    if others:
        option, _, value = others[0].partition("=")
        [after, *_] = [*words[words.index(others[0]) + 1 :], "-"]
        value = value or after * (not re.match("-|.*=", after))
        raise PlanError([Problem(option, f"no such option; {bare(option.strip('-').replace('-', '_'), value)}")])
    if spaced := next((word for word in given.words if word.startswith("=")), None):
        raise PlanError([Problem(spaced, "stands alone; write key=value without spaces around =, as in norm=ln,rms")])
    if given.words and re.fullmatch(r"\w[\w-]*", given.words[0]):
        spelt = {name: name for name in COMMANDS} | {name: f"analyse {name}" for name in TAKEN}
        raise PlanError([Problem(given.words[0], f"no such command; {bare(given.words[0], choices=spelt)}")])
    folder, *more = given.config_dir or [None]
    if more:
        raise PlanError([Problem("--config-dir", "is given twice; there is one folder of your own variants")])
    if given.cfg:
        from ablate.planning.composition import configuration_of

        print(configuration_of(given.words, folder, given.cfg), end="")
        return Outcome(0)
    plan = api.plan(given.words, folder)
    return dry_run(plan) if plan.dry_run else sweep(plan)


def help_text(folder: str | None, asked: Collection[str] = ()) -> str:
    """Usage, the variants of every group, and the keys; of groups that are `asked` for, each variant's first line.
    Raises PlanError for a word that is no group."""
    from ablate.config.errors import PlanError, Problem
    from ablate.config.groups import experiments, first_line, groups
    from ablate.config.schema import NAMED_ELSEWHERE
    from ablate.formatting import instead

    found = groups(folder) | {"+experiment": experiments(folder)}
    order = sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    names = [group.lstrip("+") for group in order]
    also = {other: name for name in names for other in NAMED_ELSEWHERE.get(name, "").split()}
    if lost := [word for word in asked if word.lstrip("+") not in names]:
        other = f"is a command; write ablate {lost[0]} --help" if lost[0] in COMMANDS else ""
        raise PlanError([Problem(f"help {lost[0]}", other or f"no such group; {instead(lost[0], names, also)}")])
    if known := [group for group in order if group in asked or group.lstrip("+") in asked]:
        rows = {group: [f"  {name:<15} {first_line(file)}" for name, file in found[group].items()] for group in known}
        return "\n".join("\n".join([group, *rows[group]]) for group in known)
    lines = [USAGE, "groups and their variants (ablate help norm ffn: what each of these is)"]
    for group in order:
        wrapped = textwrap.wrap(", ".join(found[group]), 110 - 18, break_on_hyphens=False)
        lines += [f"  {name:<16}{row}" for name, row in zip([group, *[""] * len(wrapped)], wrapped, strict=False)]
    return "\n".join([*lines, "", KEYS])
