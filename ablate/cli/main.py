"""`ablate [-m] key=value ...`, or `ablate status ...`: which command it is, and what it ends with.

Exit codes of a study: 0 every run ended with a result, 1 some run failed, 2 the command line was wrong and nothing was
trained, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ablate import __version__
from ablate.config.import_path import find_here, leave_current_folder
from ablate.execution.signals import heeding_signals, ignore_signals
from ablate.format.streams import exit_with, prepare

if TYPE_CHECKING:
    from ablate.config.json_output import Outcome
    from ablate.planning.runs import Plan

USAGE = """\
usage: ablate [-m] [group=variant[,variant...]] [key=value[,value...]] [--config-dir DIR] [--json]
       ablate COMMAND [...]

A comma makes a factor: every combination is trained with every seed, paired, and compared.
  ablate -m norm=ln,rms ffn=mlp,swiglu     a sweep of four cells, five seeds each
  ablate -m norm=ln,rms dry_run=true       what it would train, and what that costs
  ablate -m +preset=llama norm=rms,ln      the same in a published model family
  ablate +experiment=glu_variants          a study file: question, factors, claims

commands (each has --help)
  ablate studies [NAME ...]                study files trained one after another, and their tables written
  ablate analyse [STUDY]                   figures, tables and a report of the newest study
  ablate status [STUDY] [--watch]          what is done, running, left; and what is not compared
  ablate diff A B                          what differs between two cells or runs
  ablate clean                             what could be removed, and how much space it takes
  ablate evaluate [STUDY]                  kept weights evaluated again, at other lengths too
  ablate sync [STUDY]                      runs replayed to the tracking service
  ablate catalogue                         every variant and its source, as tables
--json, of any command: what it ends with as JSON, for scripts (docs/json.md)
ablate --version; tab completion in bash or zsh: eval "$(register-python-argcomplete ablate)"
"""
KEYS = """\
keys (see conf/config.yaml and conf/scale/ for the values)
  seeds=5 or seeds=[3,7]   replications            confirm=8            fresh seeds, a study of its own
  seeds=auto seeds_max=20  until all is decided    aa=8                 placebos: what noise alone makes
  margin=0.01 or '2 %'     what does not matter    exchange=true        effects in training steps
  study=NAME               name of the study       reference={norm:rms} what differences are taken from
  design=grid|one_at_a_time|leave_one_out|cumulative|fractional         zip=[model.layers,model.dim] values in pairs
  tune.key=optim.lr tune.values=[1e-3,3e-3] tune.seeds tune.extend      a key tuned for each cell
  model.layers model.heads model.dim model.dropout model.tie_embeddings model.scale_embeddings model.share_layers
  data.context data.path data.tokenizer            eval.tokens eval.val_share eval.lengths
  train.steps train.batch_size train.eval_every train.log_every train.device train.precision train.parallel
  train.diagnostics train.compile train.products train.average
  optim.lr optim.warmup optim.weight_decay optim.betas optim.clip optim.floor
  match=params|flops       widths by the reference match=seconds|flops_total     steps by the reference
  timing=isolated          one run at a time, so that speed is compared
  results_dir=DIR          dry_run=true            keep=weights|all|none         user=[my_package]
  reuse=same|any|none      of runs on disk         allow_duplicates=true         tier=NAME of a study file
--hydra-help shows Hydra's own options."""
ORDER: tuple[str, ...] = ("norm", "ffn", "residual", "position", "attention", "init")  # of groups, in --help
ORDER += ("model", "data", "scale", "optim", "track", "preset")
COMMANDS = {name: f"ablate.cli.{name}" for name in ("status", "diff", "clean", "sync", "evaluate", "catalogue")}
COMMANDS |= {"analyse": "analysis.cli.main", "studies": "ablate.cli.studies"}
TRAINING = ("studies",)  # of these commands: nothing but a signal ends it early
HYDRAS = {"--hydra-help", "--cfg", "--info", "--shell-completion"}  # what Hydra answers
SHORT = {"-h": "--help", "-m": "--multirun", "-cd": "--config-dir"}
SHORT |= {"-c": "--cfg", "-i": "--info", "-sc": "--shell-completion"}
VALUED = ("--config-dir", "--cfg", "--info")  # options with a value, in the same word or the next

Options = list[tuple[str, str]]  # by their long names, with their values


def main(*first: str) -> None:
    """The command line, behind these words; ends the process with an exit code of the module's list."""
    words = [*first, *sys.argv[1:]]
    leave_current_folder()
    find_here(packages(words))
    if "_ARGCOMPLETE" in os.environ:
        from ablate.cli.completion import complete

        complete(COMMANDS)
    if words and words[0] in COMMANDS:
        end_with = exit_after_training if words[0] in TRAINING else exit_with
        end_with(lambda: importlib.import_module(COMMANDS[words[0]]).main(words[1:]))
    exit_after_training(lambda: command(words))


def packages(words: list[str]) -> list[str]:
    """The packages that `user=` names, which are checked where they are read."""
    values = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("user=")]
    return re.findall(r"[\w.]+", " ".join(values))


def exit_after_training(act: Callable[[], int]) -> NoReturn:
    """End the process with what a command returns that may train: a signal ends it early, want of a reader does not."""
    prepare(told=False)
    code: Any = 0
    try:
        with heeding_signals():
            code = act()
            ignore_signals()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:  # Terminated is one
        code = end.code
    ignore_signals()
    sys.stdout.flush()
    sys.exit(code)


def command(words: list[str]) -> int:
    """Help, Hydra's own questions, or a study: the exit code."""
    options, overrides = split(words)
    given = dict(options)
    if "--version" in given:
        print(f"ablate {__version__}")
    elif "--help" in given:
        print(help_text(given.get("--config-dir")))
    elif HYDRAS & given.keys():
        return question(options, overrides)
    else:
        return study(words)
    return 0


def split(words: list[str]) -> tuple[Options, list[str]]:
    """The options among the words of a command line, and the overrides, in their order."""
    options, overrides, rest = Options(), list[str](), list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        name = SHORT.get(name, name)
        if name in VALUED and not value and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        if name.startswith("-"):
            options.append((name, value))
        else:
            overrides.append(word)
    return options, overrides


def question(options: Options, overrides: list[str]) -> int:
    """Hydra's answer to a question of its own: 0, or 2 and what is wrong with it."""
    from ablate.cli.hydra_flags import question_problems

    problems = question_problems(options, overrides)
    for problem in problems:
        print(f"ablate: {problem}", file=sys.stderr)
    if not problems:
        sys.argv[1:] = [*overrides, *(word for pair in options for word in pair if word)]  # none behind an option
        run_hydra()
    return 2 if problems else 0


def study(words: list[str]) -> int:
    """Plan the command line, then show it, or carry it out."""
    from ablate.config.subcommands import answer

    return answer("ablate", "--json" in words, lambda: planned_and_done([word for word in words if word != "--json"]))


def planned_and_done(words: list[str]) -> Outcome:
    """The plan of a dry run, shown, or what came of the study that was trained."""
    from ablate import api
    from ablate.config.errors import PlanError
    from ablate.config.subcommands import Outcome, refused

    try:
        plan = api.plan(*read_arguments(words))
    except PlanError as error:
        return refused("ablate", [str(problem) for problem in error.problems])
    if not plan.dry_run:
        from ablate.cli.sweep import sweep

        return sweep(plan)
    from ablate.cli.preview import budget, preview

    time, vectors = time_left(plan), vectors_left(plan)
    print(preview(plan, time, vectors))
    return Outcome(0, budget(plan) | {"time": time, "vectors": vectors}, [*plan.manifest.remarks, *plan.notes])


def time_left(plan: Plan) -> str:
    """How long the training that a plan leaves to do will take, in a line, which takes some steps to know."""
    if not plan.todo:
        return ""
    from ablate.planning.sweep_time import expected_time

    return expected_time(plan)


def vectors_left(plan: Plan) -> list[str]:
    """What training the vectors of its embeddings takes, which a plain table has none of."""
    from ablate.config.groups import default_settings

    plain = default_settings("embedding")["_target_"]
    if all(cell.config.embedding["_target_"] == plain for cell in plan.manifest.cells):
        return []
    from ablate.planning.vector_cost import expected_vectors

    return expected_vectors(plan)


def read_arguments(words: list[str]) -> tuple[list[str], str | None]:
    """The overrides of a study, and the folder of the user's own variants, if the command line names one.

    Raises PlanError for an option that there is not.
    """
    from ablate.config.errors import PlanError, Problem
    from ablate.format.suggest import instead

    options, overrides = split(words)
    folders = [value for name, value in options if name == "--config-dir"]
    for name, _ in options:
        if name not in ("--multirun", "--config-dir"):
            raise PlanError([Problem(name, "no such option; see ablate --help")])
    if words and re.fullmatch(r"\w[\w-]*", words[0]):
        raise PlanError([Problem(words[0], f"no such command; {instead(words[0], COMMANDS)}")])
    if len(folders) > 1:
        raise PlanError([Problem("--config-dir", "is given twice; there is one folder of your own variants")])
    return overrides, folders[0] if folders else None


def run_hydra() -> None:
    """Hydra's answer to a question about one configuration."""
    import hydra

    from ablate.config.compose import CONF
    from ablate.config.hydra_frame import register

    register()
    hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")(lambda config: None)()


def help_text(folder: str | None) -> str:
    """Usage, every group and variant with the first line of its YAML, and the keys that people type."""
    from ablate.config.groups import experiments, first_line, groups

    lines = [USAGE]
    found = groups(folder)
    for group in sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        lines.append(group)
        lines += [f"  {variant:<12} {first_line(file)}" for variant, file in found[group].items()]
    if studies := experiments(folder):
        lines += ["+experiment", *(f"  {name:<12} {first_line(file)}" for name, file in studies.items())]
    return "\n".join([*lines, "", KEYS])
