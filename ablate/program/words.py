"""The words of `ablate command`: the command, the values that are compared, and what to do with the runs."""

import dataclasses
import difflib
import functools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablate.config.errors import Problem
from ablate.config.program_keys import CODE, OF_EVERY_STUDY, OF_REVISIONS, OPTIONS, split_values
from ablate.program.order import FILES, Program, digest_of
from ablate.program.revisions import Revision, Setup, Tree
from ablate.program.secrets import secret_problems
from ablate.program.template import (
    ARGUMENTS,
    FALSE,
    FIELD,
    OF_A_RUN,
    TRUE,
    Template,
    field_problems,
    fill_word,
    read_template,
)
from ablate.runs.files import digest
from ablate.runs.logs import lower_is_better

CHOICES = {"better": ("min", "max"), "at": ("last", "best"), "budget": ("wallclock",), "shell": ("true", "false")}
CHOICES |= {"submodules": ("true", "false")}
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
ENVIRONMENT = "env."
LAUNCHER = ("hydra/", "hydra.")  # how words about a launcher begin
NAME = re.compile(r"[A-Za-z_][\w.\-]*")
OF_RUNS = ("cell", "label", "path", "status")  # columns that tables of runs have besides those of settings
LARGEST = 10_000_000  # bytes of a file named in the command, whose content is part of a run's key


@dataclasses.dataclass(frozen=True)
class Request:
    """What the words ask for: a command, its environment, the values of each setting, and options.

    settings     values by name; those with several are compared
    environment  values of environment variables, with fields in them
    of_study     the words that every study takes: seeds=5
    launcher     words about Hydra's launcher
    revisions    of the setting `code`, by value, once they were found
    repository   where they were found, and `subfolder` the place in it where the command was given
    """

    template: Template
    environment: dict[str, str]
    settings: dict[str, list[str]]
    options: dict[str, str]
    of_study: list[str]
    launcher: list[str]
    revisions: dict[str, Revision] = dataclasses.field(default_factory=dict)
    repository: str = ""
    subfolder: str = ""

    @property
    def fields(self) -> set[str]:
        """The fields of the command and of environment variables."""
        return self.template.fields | Template([*self.environment.values()]).fields

    @property
    def metric(self) -> str:
        """The metric that is compared."""
        return self.options.get("metric", "")

    @property
    def lower_is_better(self) -> bool | None:
        """Whether lower values of the metric are better; None if neither `better` nor its name says so."""
        better = self.options.get("better")
        return lower_is_better(self.metric) if better is None else better == "min"

    @property
    def command(self) -> str:
        """The command with its fields, as it would be typed."""
        return shlex.join(self.template.words)

    @property
    def content(self) -> list[object]:
        """What all results depend on, besides values and files: the command, its environment, how a result is read."""
        options = {name: self.options.get(name) for name in ("metric", "at", "read", "timeout", "budget")}
        place = [self.repository, self.subfolder, repr(self.setup)] if self.revisions else [os.getcwd()]
        return [self.template.words, self.environment, options, *place]

    @property
    def setup(self) -> Setup:
        """What is done once in the tree of each revision."""
        links = split_values(self.options["link"]) if "link" in self.options else []
        has_submodules = self.options.get("submodules") == "true"
        return Setup(links=links, submodules=has_submodules, command=self.options.get("setup", ""))

    @property
    def is_chain(self) -> bool:
        """Whether each value is compared with the one before."""
        return "design=cumulative" in self.of_study

    def with_tree_of_revision(self, values: Mapping[str, str]) -> dict[str, str]:
        """Values of settings, with the files of a revision in place of its name."""
        if CODE in values and self.revisions:
            return {**values, CODE: self.revisions[values[CODE]].tree}
        return dict(values)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """Digests of the files that the command names, but for those that each revision has its own of."""
        digests = {}
        for word in self.template.words:
            path = Path(word)
            is_of_revision = self.revisions and not path.is_absolute()
            if not is_of_revision and path.is_file() and path.stat().st_size <= LARGEST:
                digests[word] = digest(path.read_bytes())
        return digests

    def numbers(self, values: Mapping[str, str]) -> str:
        """A digest of all that the result of a configuration with these values depends on."""
        return digest_of([self.content, self.files, self.with_tree_of_revision(values)])

    def run_name(self, values: Mapping[str, str], seed: int) -> str:
        """The name of a run's folder."""
        return f"s{seed}-{digest_of([self.numbers(values), seed])[:16]}"

    def program(self, values: Mapping[str, str], seed: int, folder: Path) -> Program:
        """The program of one run, whose folder this is."""
        filled = {**values, "seed": str(seed), "out": str(folder / FILES)}
        arguments = {name: value for name, value in filled.items() if not name.startswith(ENVIRONMENT)}
        if CODE not in self.template.fields:  # it is the tree, and no argument
            arguments.pop(CODE, None)
        options = self.options
        tree = None
        if self.revisions:
            commit = self.revisions[values[CODE]].commit
            tree = Tree(repository=self.repository, commit=commit, folder=self.subfolder, setup=self.setup)
        return Program(
            command=self.command,
            words=self.template.fill(arguments),
            environment={name: fill_word(text, filled) for name, text in self.environment.items()},
            folder=os.getcwd(),
            tree=tree,
            metric=self.metric,
            lower_is_better=bool(self.lower_is_better),
            read=options.get("read", ""),
            at=options.get("at", "last"),
            timeout=read_time(options.get("timeout", "")),
            is_budget="budget" in options,
            parallel=int(options["parallel"]) if "parallel" in options else None,
            numbers=self.numbers(values),
        )


def read_request(command: str, words: Sequence[str]) -> tuple[Request, list[Problem]]:
    """The request of a command line, and the mistakes in it; those of `of_study` and `launcher` are found later."""
    in_shell = "shell=true" in words
    template, problems = read_template(command, in_shell)
    settings: dict[str, list[str]] = {}
    environment: dict[str, str] = {}
    options: dict[str, str] = {}
    of_study = []
    launcher = []
    for word in words:
        key, equals, text = word.partition("=")
        if word.lstrip("+~").startswith(LAUNCHER):
            launcher.append(word)
        elif key.partition(".")[0] in OF_EVERY_STUDY and equals:
            of_study.append(word)
        elif not equals or not NAME.fullmatch(key):
            problems.append(Problem(word, "is no key=value; the command itself is one word, in quotes"))
        elif key in options or key in settings:
            problems.append(Problem(key, "is given twice; write its values in one word, as in bias=true,false"))
        elif key in OPTIONS:
            options[key] = text
        else:
            settings[key] = split_values(text)
            if key.startswith(ENVIRONMENT):
                environment[key.removeprefix(ENVIRONMENT)] = f"{{{key}}}"
    problems += secret_problems(template.words, settings)
    for key, values in list(settings.items()):
        if key.startswith(ENVIRONMENT) and FIELD.search(" ".join(values)):  # env.SEED={seed}
            del settings[key]
            environment[key.removeprefix(ENVIRONMENT)] = values[0]
            problems += field_problems(values[0], key)
            if len(values) > 1:
                problems.append(Problem(key, "has fields and several values; name a field, and write its values"))
    request = Request(template, environment, settings, options, of_study, launcher)
    return request, [*problems, *option_problems(options), *use_problems(request)]


def option_problems(options: dict[str, str]) -> list[Problem]:
    """Mistakes in the values of options."""
    problems = []
    for name, choices in CHOICES.items():
        if options.get(name, choices[0]) not in choices:
            problems.append(Problem(name, f"is {' or '.join(choices)}, not {options[name]}"))
    if "metric" not in options:
        problems.append(Problem("metric", "is missing; write metric=NAME, as the program prints it: metric=val/loss"))
    if "read" in options and options["read"].count("{value}") != 1:
        problems.append(Problem("read", "has {value} once, where the number stands: read='val_bpb: {value}'"))
    if "timeout" in options and read_time(options["timeout"]) is None:
        problems.append(Problem("timeout", f"is a time such as 90s, 10m or 2h, not {options['timeout']}"))
    if "budget" in options and "timeout" not in options:
        problems.append(Problem("budget", "needs a timeout, at which a run is ended: timeout=10m budget=wallclock"))
    if not re.fullmatch(r"[1-9]\d*", options.get("parallel", "1")):
        problems.append(Problem("parallel", f"is a number of runs, not {options['parallel']}"))
    return problems


def read_time(text: str) -> float | None:
    """Seconds of a time such as 10m; None if it is none."""
    match = re.fullmatch(r"(\d+\.?\d*)(s|m|min|h|)", text)
    return float(match[1]) * UNITS[match[2]] if match and float(match[1]) > 0 else None


def use_problems(request: Request) -> list[Problem]:
    """Fields without values, values that nothing uses, and a seed that the program does not get."""
    fields = request.fields
    problems = []
    if request.metric and request.lower_is_better is None:
        message = f"is missing: {request.metric} does not say which is better; write better=min or better=max"
        problems.append(Problem("better", message))
    for name in OF_REVISIONS:
        if name in request.options and CODE not in request.settings:
            problems.append(Problem(name, "is for revisions of git; write code=main,my-idea too, or leave it out"))
    is_zipped = any(word.startswith("zip=") for word in request.of_study)
    for name in sorted(fields - {*request.settings, *OF_A_RUN, ARGUMENTS}):
        near = difflib.get_close_matches(name, request.settings, 1)
        hint = f"did you mean {{{near[0]}}}?" if near else f"write {name}=VALUE or {name}=ONE,OTHER"
        problems.append(Problem("command", f"has the field {{{name}}}, which has no value; {hint}"))
    for name, values in request.settings.items():
        if name in OF_A_RUN:
            problems.append(Problem(name, "is set for each run; write seeds=5 for five runs of each configuration"))
        elif name not in {*fields, CODE} and ARGUMENTS not in fields:
            message = f"is used nowhere in the command; write {{{name}}} where its value belongs, or {{{ARGUMENTS}}}"
            near = difflib.get_close_matches(name, [*OPTIONS, *OF_EVERY_STUDY], 1)
            problems.append(Problem(name, f"{message}; did you mean {near[0]}?" if near else message))
        if name in OF_RUNS and len(values) > 1:
            renamed = f"write {{{name}_type}} in the command, and {name}_type={','.join(values)}"
            problems.append(Problem(name, f"is a column of every table of runs, so no setting that varies; {renamed}"))
        if len(set(values)) < len(values) and not is_zipped:
            problems.append(Problem(name, "has a value twice"))
        is_switch = any(f"{{{name}?" in word for word in request.template.words)
        others = [value for value in values if value.lower() not in (*TRUE, *FALSE)]
        if is_switch and others:
            message = f"{{{name}?...}} is a switch, so its values are true or false, not {others[0]}"
            problems.append(Problem("command", message))
    if "seed" not in fields:
        problems.append(Problem("command", "does not use {seed}: pass it, as in --seed={seed} or env.SEED={seed}"))
    return problems
