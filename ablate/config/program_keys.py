"""What `ablate command` and a study file of a program can set: keys of every study, options, values of settings.

A study file has `command:` at the top, then keys and claims as every study file; the values of settings are the texts
that stand there.
"""

import csv
import dataclasses
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ablate.config.claims import Level, spell
from ablate.config.command import named_study
from ablate.config.compose import Composer
from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, Problem
from ablate.config.files import read_plain
from ablate.config.groups import STUDY_FILE_KEYS, Groups
from ablate.config.key_checks import idle_problems, study_problems
from ablate.config.schema import Config
from ablate.config.study_file import ON_COMMAND_LINE, SAME_STUDY, StudyFile, is_one_of, with_claims
from ablate.config.words import Setting, key_of, services_of
from ablate.formatting import flat

OPTIONS = {
    "metric": "the name of what is compared, as the program prints it: val/loss",
    "better": "min or max: which values of the metric are better",
    "at": "last or best: which step of a run counts",
    "read": "the text around the metric, where no file and no line has it by name: 'val_bpb: {value}'",
    "timeout": "when a run is ended, as a failure: 90s, 10m, 2h",
    "budget": "wallclock: a run is ended at its timeout with what it has reached",
    "parallel": "how many runs at a time; by default one, or one for each GPU",
    "shell": "true: a shell reads the command, with its pipes and variables; values are quoted for it",
    "link": "with code=: ignored files and folders that each revision gets a link to: link=data,meta.pkl",
    "setup": "with code=: a shell command that is run once in the files of each revision: setup='uv sync'",
    "submodules": "true, with code=: each revision gets its submodules",
}
OF_REVISIONS = ("link", "setup", "submodules")  # of these options, those that need revisions
CODE = "code"
SETTINGS = {  # with a meaning of their own
    "env.NAME": "values of an environment variable: env.LR=1e-3,3e-3, or env.SEED={seed}",
    CODE: "git revisions: code=main,my-idea; . is the working tree as it is",
}
OF_EVERY_STUDY = {  # read as those of studies of models are
    "seeds": "how many, or [3,4,5], or auto: more until all is decided, at most seeds_max",
    "seeds_max": "the most that seeds=auto adds",
    "design": "grid, one_at_a_time, leave_one_out, or cumulative",
    "zip": "[lr,wd]: settings whose values change together",
    "margin": "the difference that would matter, for verdicts of equivalence",
    "confirm": "how many fresh seeds confirm an earlier study of the same command",
    "track": "wandb or tensorboard: where the curves of runs are sent",
    "study": "the name of the study, or its file: study=mine.yaml",
    "results_dir": "the folder of results",
    "dry_run": "true: show the plan and three commands",
}
RUNNING = {"parallel", "timeout", *SAME_STUDY}  # keys that leave a file's study as it is


def split_values(text: str) -> list[str]:
    """The values of a setting; a comma within double quotes separates nothing."""
    [values] = csv.reader([text]) if text else [[""]]
    return values


def word_of(key: str, values: Sequence[Level]) -> str:
    """A setting with these values, or an option with its one, as a word: bias=true,false."""
    if key in OPTIONS:
        return f"{key}={spell(values[0])}"
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([spell(value) for value in values])
    return f"{key}={line.getvalue()}"


def config_of(settings: dict[str, Setting], groups: Groups) -> tuple[Config, list[Problem]]:
    """The keys of every study, as the command sets them, and what is wrong with them."""
    keys = [key for key in settings if key in OF_EVERY_STUDY or key.startswith("track.")]
    values = {"track": services_of("none", groups)} | {key: settings[key].value for key in keys}
    with Composer(groups) as composer:
        config = composer.compose(values).config
    problems = composer.all_problems()
    config = dataclasses.replace(config, track=[service for service in variants_of(config.track) if service])
    if config.design == "ladder":
        problems.append(Problem("design", "ladder is for models of ablate; write another, or leave it out"))
    problems += idle_problems(keys, config, [])
    return config, problems or study_problems(config)


def with_program_file(command: str, words: Sequence[str]) -> tuple[StudyFile | None, str, list[str], list[Problem]]:
    """The study file that a command line names by study=mine.yaml, if it does, and command and words with those of the
    file, which words of the command line replace."""
    names = [word.partition("=")[2] for word in words if key_of(word) == "study"]
    if not names or not names[0].endswith((".yaml", ".yml")):
        return None, command, list(words), []
    typed_words = [word for word in words if key_of(word) != "study"]
    file, content, problems = read_program_file(Path(names[0]))
    if file is None:
        return None, command, typed_words, problems
    if command:
        problems.append(Problem("command", f"is given twice, also in {file.file}; leave one out"))
    if "command" not in content:
        problems.append(Problem(f"{file.file}: command", "is missing; write the program's command there"))
    changes = sorted(word for word in typed_words if not is_one_of(key_of(word), RUNNING))
    name = Setting("study", [content.get("study", file.name)], "", file=file.file)
    named = named_study(dataclasses.replace(file, settings={"study": name}), None, changes)
    typed_keys = {key_of(word) for word in typed_words}
    of_file = [setting.text for key, setting in file.settings.items() if key not in typed_keys]
    return file, command or content.get("command", ""), [named.text, *of_file, *typed_words], problems


def read_program_file(path: Path) -> tuple[StudyFile | None, dict[str, Any], list[Problem]]:
    """The study file of a program, its content, and what is wrong with it.  Values are the texts that stand there."""
    import yaml

    try:
        content = read_plain(path, yaml.BaseLoader)
    except Corrupt as error:
        return None, {}, [Problem("study", str(error))]
    if not isinstance(content, dict) or not isinstance(content.get("factors", {}), dict):
        return None, {}, [Problem(str(path), "must map keys to values, as in command: python train.py --seed={seed}")]
    factors = {str(key): levels for key, levels in content.get("factors", {}).items() if isinstance(levels, list)}
    settings = {}
    for key, value in flat({key: value for key, value in content.items() if key not in STUDY_FILE_KEYS}).items():
        if key not in ("command", "study"):
            settings[key] = Setting(key, [value], word_of_file(key, value), file=str(path))
    for key, levels in factors.items():
        settings[key] = Setting(key, levels, word_of(key, levels), swept=True, file=str(path))
    problems = [Problem(key, ON_COMMAND_LINE[key]) for key in content if key in ON_COMMAND_LINE]
    content["claims"] = with_numbers(content.get("claims", {}), factors)
    file, problems = with_claims(StudyFile(path.stem, str(path), settings, {}), content, factors, problems)
    return file, content, problems


def word_of_file(key: str, value: Any) -> str:
    """A setting of a study file as a word of the command line."""
    if key in OF_EVERY_STUDY:
        return f"{key}=[{','.join(value)}]" if isinstance(value, list) else f"{key}={value}"
    return word_of(key, [value])


def with_numbers(content: Any, factors: Collection[str], key: str = "") -> Any:
    """Claims of texts, with numbers in place of those that are no levels of a factor."""
    if isinstance(content, dict):
        return {name: with_numbers(value, factors, name) for name, value in content.items()}
    if isinstance(content, list):
        return [with_numbers(value, factors, key) for value in content]
    try:
        return content if key in factors else float(content)
    except ValueError:
        return content
