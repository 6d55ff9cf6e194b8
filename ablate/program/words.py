"""The words of `ablate command`: the command, the values that are compared, and what to do with the runs."""

import csv
import dataclasses
import difflib
import re
from collections.abc import Sequence

from ablate.config.errors import Problem
from ablate.formatting import instead
from ablate.program.template import ARGUMENTS, FIELD, OF_A_RUN, Template, field_problems, read_template, switch_problem

OPTIONS = {
    "metric": "the name of what is compared, as the program prints it: val/loss",
    "better": "min or max: which values of the metric are better",
    "seeds": "how many, or [3,4,5]",
    "at": "last or best: which step of a run counts",
    "read": "the text around the metric, where no file and no line has it by name: 'val_bpb: {value}'",
    "timeout": "when a run is ended, as a failure: 90s, 10m, 2h",
    "budget": "wallclock: a run is ended at its timeout with what it has reached",
    "parallel": "how many runs at a time; by default one, or one for each GPU",
    "design": "grid, or one_at_a_time",
    "margin": "the difference that would matter, for verdicts of equivalence",
    "confirm": "how many fresh seeds confirm an earlier study of the same command",
    "shell": "true: a shell reads the command, with its pipes and variables; values are quoted for it",
    "study": "the name of the study",
    "results_dir": "the folder of results",
    "dry_run": "true: show the plan and three commands",
}
CHOICES = {"better": ("min", "max"), "at": ("last", "best"), "budget": ("wallclock",)}
CHOICES |= {"design": ("grid", "one_at_a_time"), "dry_run": ("true", "false"), "shell": ("true", "false")}
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
ENVIRONMENT = "env."
NAME = re.compile(r"[A-Za-z_][\w.\-]*")
DEFAULT_SEEDS = 5


@dataclasses.dataclass(frozen=True)
class Request:
    """What the words ask for: a command, its environment, the values of each setting, and options.

    settings     values by name; those with several are compared
    environment  values of environment variables, with fields in them
    """

    template: Template
    environment: dict[str, str]
    settings: dict[str, list[str]]
    options: dict[str, str]
    seeds: list[int]
    timeout: float | None

    @property
    def factors(self) -> dict[str, list[str]]:
        """The settings with several values."""
        return {name: values for name, values in self.settings.items() if len(values) > 1}

    @property
    def fields(self) -> set[str]:
        """The fields of the command and of environment variables."""
        return self.template.fields | Template([*self.environment.values()]).fields

    def option(self, name: str, default: str) -> str:
        """The value of an option."""
        return self.options.get(name, default)


def read_request(command: str, words: Sequence[str]) -> tuple[Request, list[Problem]]:
    """The request of a command line, and all its mistakes."""
    in_shell = "shell=true" in words
    template, problems = read_template(command, in_shell)
    settings: dict[str, list[str]] = {}
    environment: dict[str, str] = {}
    options: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not NAME.fullmatch(key):
            problems.append(Problem(word, "is no key=value; the command itself is one word, in quotes"))
        elif key in options or key in settings:
            problems.append(Problem(key, "is given twice; write its values in one word, as in bias=true,false"))
        elif key in OPTIONS:
            options[key] = text
        else:
            settings[key] = split_values(text)
            if key.startswith(ENVIRONMENT):
                environment[key.removeprefix(ENVIRONMENT)] = f"{{{key}}}"
    for key in [key for key in settings if key.startswith(ENVIRONMENT)]:
        if any(FIELD.search(value) for value in settings[key]):  # env.SEED={seed}
            values = settings.pop(key)
            environment[key.removeprefix(ENVIRONMENT)] = values[0]
            problems += [problem for value in values for problem in field_problems(value, key)]
            if len(values) > 1:
                problems.append(Problem(key, "has fields and several values; name a field, and write its values"))
    problems += option_problems(options)
    seeds, seed_problem = read_seeds(options.get("seeds", str(DEFAULT_SEEDS)))
    timeout, time_problem = read_time(options.get("timeout", ""))
    if seed_problem:
        problems.append(Problem("seeds", seed_problem))
    if time_problem:
        problems.append(Problem("timeout", time_problem))
    request = Request(template, environment, settings, options, seeds, timeout)
    problems += use_problems(request)
    return request, problems


def split_values(text: str) -> list[str]:
    """The values of a setting; a comma within double quotes separates nothing."""
    [values] = csv.reader([text]) if text else [[""]]
    return values


def option_problems(options: dict[str, str]) -> list[Problem]:
    """Mistakes in the values of options."""
    problems = []
    for name, choices in CHOICES.items():
        if options.get(name, choices[0]) not in choices:
            problems.append(Problem(name, f"is {instead(options[name], choices)}, not {options[name]}"))
    if "metric" not in options:
        problems.append(Problem("metric", "is missing; write metric=NAME, as the program prints it: metric=val/loss"))
    if "read" in options and options["read"].count("{value}") != 1:
        problems.append(Problem("read", "has {value} once, where the number stands: read='val_bpb: {value}'"))
    if "budget" in options and "timeout" not in options:
        problems.append(Problem("budget", "needs a timeout, at which a run is ended: timeout=10m budget=wallclock"))
    if not re.fullmatch(r"[1-9]\d*", options.get("parallel", "1")):
        problems.append(Problem("parallel", f"is a number of runs, not {options['parallel']}"))
    if not re.fullmatch(r"[1-9]\d*", options.get("confirm", "1")):
        problems.append(Problem("confirm", f"is a number of fresh seeds, not {options['confirm']}"))
    margin = options.get("margin", "1")
    if not re.fullmatch(r"\d*\.?\d+(e-?\d+)?", margin) or float(margin) <= 0:
        problems.append(Problem("margin", f"is a positive difference of the metric, not {margin}"))
    return problems


def read_seeds(text: str) -> tuple[list[int], str]:
    """The seeds of `seeds=5` or `seeds=[3,4,5]`, and what is wrong with them."""
    if re.fullmatch(r"[1-9]\d{0,3}", text):
        return list(range(int(text))), ""
    if re.fullmatch(r"\[\d+(,\d+)*\]", text):
        return sorted({int(seed) for seed in text[1:-1].split(",")}), ""
    return [], f"is a number of seeds, or a list such as [3,4,5], not {text}"


def read_time(text: str) -> tuple[float | None, str]:
    """Seconds of a time such as 10m, and what is wrong with it."""
    match = re.fullmatch(r"(\d+\.?\d*)(s|m|min|h|)", text)
    if match and float(match[1]) > 0:
        return float(match[1]) * UNITS[match[2]], ""
    return None, f"is a time such as 90s, 10m or 2h, not {text}" if text else ""


def use_problems(request: Request) -> list[Problem]:
    """Fields without values, values that nothing uses, and a seed that the program does not get."""
    fields = request.fields
    problems = []
    known = {*request.settings, *OF_A_RUN, ARGUMENTS}
    for name in sorted(fields - known):
        near = difflib.get_close_matches(name, request.settings, 1)
        hint = f"did you mean {{{near[0]}}}?" if near else f"write {name}=VALUE or {name}=ONE,OTHER"
        problems.append(Problem("command", f"has the field {{{name}}}, which has no value; {hint}"))
    for name, values in request.settings.items():
        if name in OF_A_RUN:
            problems.append(Problem(name, "is set for each run; write seeds=5 for five runs of each configuration"))
        elif name not in fields and ARGUMENTS not in fields:
            message = f"is used nowhere in the command; write {{{name}}} where its value belongs, or {{{ARGUMENTS}}}"
            near = difflib.get_close_matches(name, OPTIONS, 1)
            problems.append(Problem(name, f"{message}; did you mean {near[0]}?" if near else message))
        if len(set(values)) < len(values):
            problems.append(Problem(name, "has a value twice"))
        if any(f"{{{name}?" in word for word in request.template.words):
            wrong = switch_problem(name, values)
            if wrong:
                problems.append(Problem("command", wrong))
    if "seed" not in fields:
        message = (
            "does not use {seed}, so that all its runs would be alike; pass it, as in --seed={seed} or env.SEED={seed}"
        )
        problems.append(Problem("command", message))
    return problems
