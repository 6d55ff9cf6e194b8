"""Secrets in a command, and words that only look like them."""

import pytest

from ablate.program.secrets import secret_problems

RANDOM = "q8Zr2LkP0vXw7TnB5cYd"


@pytest.mark.parametrize(
    "words",
    [
        ["--api_key=abc"],
        ["--api-key", "abc"],
        ["password=x"],
        ["sk-0123456789abcdefghij"],
        ["--hub_token", RANDOM],
        [f"--wandb-key={RANDOM}"],
    ],
)
def test_secrets_are_refused(words):
    [problem] = secret_problems(["python", "train.py", *words], {})
    assert "looks like a secret" in problem.message
    assert RANDOM not in problem.message


@pytest.mark.parametrize("name", ["env.HF_TOKEN", "access_token"])
def test_settings_are_looked_at_too(name):
    assert secret_problems([], {name: [RANDOM]})


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer=bpe", "--max_tokens", "100000000000000000000"],
        ["--tokenizer=bert-base-uncased-whole-word-masking"],
        ["--api_key={key}"],
        ["--monkey=see"],
        ["--password-file", "secret.txt"],
        [f"--out={RANDOM}"],
    ],
)
def test_other_words_are_not(words):
    assert not secret_problems(["python", "train.py", *words], {})
