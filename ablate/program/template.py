"""A command with fields: `python train.py --bias={bias} --seed={seed} --out_dir={out}`.

It is split into words once, without a shell, and a field is filled inside its word, which is never split again.

    {bias}              the value of bias
    {causal?--causal}   --causal if the value of causal is true, else nothing
    {args}              --key=value for each setting that no other field names; a word of its own
    {seed}, {out}       the seed of a run, and a new folder of its own
    {{ and }}           braces
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ablate.config.errors import Problem

FIELD = re.compile(r"(\{\{)|(\}\})|\{([^{}?]*)(?:\?([^{}]*))?\}|([{}])")
QUOTED = re.compile(r"(-[\w-]+=)?(['\"])\{[^{}]*\}\2")
ARGUMENTS = "args"
OF_A_RUN = ("seed", "out")  # what differs between the runs of a configuration
TRUE = ("true", "1", "yes", "on")
FALSE = ("false", "0", "no", "off", "null", "none", "")


@dataclass(frozen=True)
class Template:
    """The words of a command, with fields in them; one word if a shell is to read it."""

    words: list[str]
    in_shell: bool = False

    @property
    def fields(self) -> set[str]:
        """The names of all fields."""
        names = set()
        for word in self.words:
            for match in FIELD.finditer(word):
                if match[3] is not None:
                    names.add(match[3])
        return names

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """The words with these values in their fields; words that become empty by a field are left out."""
        if self.in_shell:
            quoted = {name: shlex.quote(text) for name, text in values.items()}
            return ["/bin/sh", "-c", fill_word(self.words[0], quoted)]
        unnamed = [f"--{name}={value}" for name, value in values.items() if name not in {*self.fields, *OF_A_RUN}]
        filled = []
        for word in self.words:
            if word == f"{{{ARGUMENTS}}}":
                filled += unnamed
                continue
            text = fill_word(word, values)
            if text or not word:
                filled.append(text)
        return filled


def fill_word(word: str, values: Mapping[str, str]) -> str:
    """A word, or the value of an environment variable, with these values in its fields."""

    def value_of(match: re.Match[str]) -> str:
        opening, closing, name, flag, _ = match.groups()
        if opening or closing:
            return match[0][0]
        if flag is None:
            return values[name]
        return flag if values[name].lower() in TRUE else ""

    return FIELD.sub(value_of, word)


def read_template(text: str, in_shell: bool = False) -> tuple[Template, list[Problem]]:
    """The template of a command, and its mistakes."""
    try:
        words = [text] if in_shell else shlex.split(text)
    except ValueError as error:
        return Template([]), [Problem("command", f"{text} has an open quote ({error}); close it")]
    if not words:
        return Template([]), [Problem("command", "is empty; write ablate command 'python train.py --seed={seed}' ...")]
    problems = []
    for word in words:
        problems += field_problems(word, "command")
        if not in_shell and QUOTED.fullmatch(word):
            problems.append(Problem("command", f"{word} keeps its quotes, since no shell reads it; leave them out"))
    return Template(words, in_shell), problems


def field_problems(word: str, key: str) -> list[Problem]:
    """The mistakes in the fields of a word, or of the value of an environment variable."""
    problems = []
    for match in FIELD.finditer(word):
        if match[5]:
            problems.append(Problem(key, f"{word} has a single brace; write {{{{ or }}}} for a brace itself"))
        elif match[3] == "":
            problems.append(Problem(key, f"{word} has a field without a name; write {{{{}}}} for braces themselves"))
        elif match[3] == ARGUMENTS and (key != "command" or word != f"{{{ARGUMENTS}}}"):
            problems.append(Problem(key, f"{{{ARGUMENTS}}} is a word of its own in the command, not a part of {word}"))
    return problems
