"""Evaluates saved weights again: whether they reproduce the metrics from training, and at new lengths.

Exit codes: 0 all reproduced; 1 some run could not be evaluated or differs; 2 the command line was wrong.
"""

import dataclasses
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.errors import Corrupt, Refused, first_line
from ablate.config.schema import Config
from ablate.config.subcommands import Outcome, Parser, conclude, one_name, user_of
from ablate.formatting import columns, counted
from ablate.formatting.streams import say
from ablate.results.atomic import set_aside
from ablate.results.manifest import choose_study, manifest_of
from ablate.results.run import why_without
from ablate.results.run_key import is_foreign, numbers
from ablate.training.load import LoadedRun, load_run

KEYS = ("eval.lengths", "eval.tokens")
ROUNDING = 1e-3  # relative tolerance if training was compiled or on a GPU


class NamedRun(NamedTuple):
    """A run, with its cell and seed as the table shows them."""

    cell: str
    seed: str
    loaded: LoadedRun


def main(arguments: list[str] | None = None) -> int:
    """Evaluate runs and print a table and remarks; returns the exit code."""
    parser = Parser("ablate evaluate", "Evaluate the kept weights of runs again.")
    usage = "a study's name (default: the newest) or results/runs/<cell>/<key>; eval.lengths=[64,128], eval.tokens=N"
    parser.add_argument("words", nargs="*", metavar="STUDY|RUN_FOLDER|KEY=VALUE", help=usage)
    given = parser.parse_intermixed_args(arguments)

    def act() -> Outcome:
        words, user = user_of(given.words)
        what = [word for word in words if "=" not in word or Path(word).exists()]
        requested = read_overrides([word for word in words if word not in what])
        runs, damaged = find(what, given.results_dir, user)
        for line in damaged:
            say(line)
        outcome = evaluate(runs, requested)
        return outcome._replace(code=outcome.code or int(bool(damaged)), remarks=damaged + outcome.remarks)

    return conclude(parser.prog, given.json, act)


def read_overrides(texts: list[str]) -> dict[str, Any]:
    """Parse `eval.lengths=[64]` and `eval.tokens=4096` into values by setting.  Raises Refused."""
    import yaml

    found = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key not in KEYS:
            raise Refused(f"{key} cannot be set here; there are {' and '.join(KEYS)}")
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError:
            read = None
        whole = read if isinstance(read, list) else [read]
        if isinstance(read, list) != (key == KEYS[0]) or not all(type(n) is int and n > 0 for n in whole):
            raise Refused(f"{text} cannot be read; write {KEYS[0]}=[64,128] or {KEYS[1]}=16384")
        if len(set(whole)) < len(whole):
            raise Refused(f"{text} names a length twice")
        found[key.partition(".")[2]] = read
    return found


def find(names: list[str], results: Path, user: Iterable[str] = ()) -> tuple[list[NamedRun], list[str]]:
    """The finished runs of a study, or the run in a folder, and a line for each damaged run.  Raises Refused."""
    name = one_name(names)
    folder = Path(name or "").resolve()
    if name and ((folder / "config.yaml").exists() or (folder / "result.json").exists()):
        what, seed = name, folder.name.partition("-")[0].removeprefix("s")
        there = [(folder.parent.name, seed, folder)]
    else:
        what = choose_study(results, name)
        manifest = manifest_of(results, what)
        labels = {cell.id: cell.label for cell in manifest.cells}
        there = [(labels[run.cell], str(run.seed), results.absolute() / "runs" / run.path) for run in manifest.runs]
    found, damaged = [], []
    for cell, seed, place in there:
        try:
            found.append(NamedRun(cell, seed, load_run(place, user)))
        except FileNotFoundError:  # it has not begun
            continue
        except Corrupt as error:
            damaged.append(f"{cell}, seed {seed} cannot be evaluated: {error}")
    done = [run for run in found if run.loaded.result and run.loaded.result.status == "done"]
    if not done and not damaged:
        raise Refused(f"{what} has no run that is done; train it first")
    if done and not any(run.loaded.run.weights_file.exists() for run in done):
        why = {why_without(run.loaded.result, run.loaded.run.weights_file) for run in done}
        raise Refused(f"{what} has no weights to evaluate: {', '.join(sorted(why))}")
    return done, damaged


def evaluate(runs: list[NamedRun], requested: dict[str, Any]) -> Outcome:
    """Evaluate runs one after another, and print a table and remarks.  Raises Refused if a run's task or
    positions do not support a length."""
    from ablate.planning.cells import seen_in_training
    from ablate.planning.checks.user_code import Failed, run_in_subprocess
    from ablate.training.devices import configure_torch

    configure_torch()  # as in training
    # User code of one run must not affect another's numbers, and a process that uses a GPU must not fork.
    call = run_in_subprocess if any(is_foreign(numbers(run.loaded.config)) for run in runs) else (lambda act: act())
    for run in runs if requested.get("lengths") else []:  # before anything is evaluated
        try:
            wrong = call(partial(problems_of, run.loaded, requested))
        except (ValueError, ImportError, Failed):
            continue  # other data or a missing package: reported when the run is evaluated
        if wrong:
            raise Refused(f"{run.cell}: {wrong[0]}")
    rows, remarks, problems, seen = [], [], [], list[str]()
    for run in runs:
        try:
            found, in_training = call(partial(measured, run.loaded, requested))
        except Exception as error:  # no weights, other data, incompatible code: continue with the others
            reason = first_line(error) or type(error).__name__
            if isinstance(error, Corrupt) and error.file:
                with run.loaded.run.lock(lambda: False) as mine:  # else it is in training
                    if mine and error.file.exists():
                        aside = set_aside(error.file).name
                        reason += f"; set aside as {aside}, and its study's command trains the run again"
            problems.append(f"{run.cell}, seed {run.seed} cannot be evaluated: {reason}")
            say(problems[-1])
            continue
        rows.append((run, found))
        seen += seen_in_training(in_training)
        remarks += [f"{run.cell}, seed {run.seed}: {note}" for note in differences(run.loaded, found, requested)]
    if rows:
        comparable = any(same_tokens(run.loaded, requested) for run, _ in rows)
        equal = "equal to what training wrote" if comparable else "not comparable with training: other eval.tokens"
        equal = f"{len(rows)} of {counted(len(runs), 'run')}: {equal}" if len(rows) < len(runs) else equal
        names = sorted(dict.fromkeys(name for _, found in rows for name in found), key=lambda name: "@" in name)
        cells = [(one.cell, one.seed, *(f"{m[name]:.4f}" if name in m else "" for name in names)) for one, m in rows]
        table = columns([("cell", "seed", *names), *cells])
        print("\n".join([*table, *(remarks or [equal]), *dict.fromkeys(seen)]))
    each = [{"path": one.loaded.run.path, "cell": one.cell, "seed": one.seed, "metrics": m} for one, m in rows]
    return Outcome(1 if remarks or problems else 0, {"runs": each, "differences": remarks}, problems)


def problems_of(loaded: LoadedRun, requested: dict[str, Any]) -> list[str]:
    """Problems of the requested lengths for one run."""
    from ablate.planning.checks.validate import length_problems

    return [str(problem) for problem in length_problems(configured(loaded, requested), loaded.task())]


def configured(loaded: LoadedRun, requested: dict[str, Any]) -> Config:
    """A run's configuration with the requested values and without compilation; fp32 on the CPU if there is no GPU."""
    import torch

    config = loaded.config.with_value("train.compile", False)
    if config.train.device == "cuda" and not torch.cuda.is_available():
        config = config.with_value("train.device", "cpu").with_value("train.precision", "fp32")
    return config.with_value("eval", dataclasses.replace(config.eval, **({"lengths": []} | requested)))


def measured(loaded: LoadedRun, requested: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The run's test metrics from its weights, and the lengths whose test examples occur in training, with their share.
    Saves metrics at lengths if eval.tokens is as in training."""
    from ablate.model.init import data_seed
    from ablate.model.products import use
    from ablate.planning.checks.user_code import seen_lengths
    from ablate.training.evaluation import add_length, at_lengths, final_evaluation, following, setting_of

    config, [seed] = configured(loaded, requested), loaded.config.seeds
    setting, task, lengths = setting_of(config), loaded.task(), config.eval.lengths
    model = loaded.model().to(setting.device)
    use(config.train.matmul, model, config.train.device)
    batches = following(task, data_seed(config.seed, seed), config.train.steps, config.train.batch_size)
    found, _ = final_evaluation(model, task, setting, batches)
    if setting.tokens != loaded.config.eval.tokens:
        found |= at_lengths(model, task, setting, lengths)
    else:
        for length in lengths:  # one by one: those before one that fails are kept
            with loaded.run.lock(lambda: True):
                found |= add_length(loaded.run, model, task, setting, length)
    return found, seen_lengths(config, task)


def same_tokens(loaded: LoadedRun, requested: dict[str, Any]) -> bool:
    """Whether eval.tokens is as in training."""
    return bool(requested.get("tokens", loaded.config.eval.tokens) == loaded.config.eval.tokens)


def differences(loaded: LoadedRun, found: dict[str, float], requested: dict[str, Any]) -> list[str]:
    """A line for each metric that differs from the run's result; exact unless training was compiled or on a GPU."""
    stored = loaded.result.final if loaded.result and same_tokens(loaded, requested) else {}
    # Here models are not compiled, and may be on another device.
    within = ROUNDING if loaded.config.train.compile or loaded.config.train.device != "cpu" else 0.0
    both = [(name, value, old) for name, value in found.items() if (old := stored.get(name)) is not None]
    different = [(name, value, old) for name, value, old in both if abs(old - value) > within * abs(old)]
    return [f"{name} is {value!r}, and training wrote {old!r}" for name, value, old in different]
