"""Passwords and access tokens in a command, which manifests and results would show."""

import re
from collections.abc import Iterator, Mapping, Sequence

from ablate.config.errors import Problem
from ablate.program.template import FIELD

SECRET_NAME = re.compile(r"(?i)(api[-_]?key|secret|passw(or)?d|passphrase)$")  # whose every value is one
PERHAPS_NAME = re.compile(r"(?i)token|key|auth|credential")  # --tokenizer=bpe is none
ISSUED = re.compile(r"\b(sk|hf|ghp|gho|github_pat|xox[bp]|AKIA)[-_]?\w{16,}")  # by well-known services
RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w\-+=~]{20,}")


def secret_problems(words: Sequence[str], settings: Mapping[str, Sequence[str]]) -> list[Problem]:
    """The names and words of a command and its settings that look like secrets."""
    pairs = [*arguments(" ".join(words).split())]  # a shell's command is one word
    for name, values in settings.items():
        pairs += [(name, value) for value in values]
    problems = []
    for name, value in pairs:
        if is_secret(name, value):
            message = f"{name or value[:4] + '...'} looks like a secret, which results would show"
            problems.append(Problem("command", f"{message}; set it in the environment, which is passed on"))
    return list(dict.fromkeys(problems))


def arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The arguments of a command by name: --key=VALUE, key=VALUE, --key VALUE; of other words the name is empty."""
    flag = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            yield name, value
        else:
            yield flag, word
        is_flag = word.startswith("-") and not equals
        flag = word if is_flag else ""


def is_secret(name: str, value: str) -> bool:
    """Whether the value of an argument looks like a secret, by its name or its letters."""
    if not value or FIELD.search(value):
        return False
    if ISSUED.search(value):
        return True
    if SECRET_NAME.search(name):
        return not value.startswith("-")
    return bool(PERHAPS_NAME.search(name) and RANDOM.fullmatch(value))
