"""Commands with fields: what stands in their place, and mistakes."""

import pytest

from ablate.program.template import Template, read_template

VALUES = {"bias": "true", "lr": "1e-3", "seed": "0", "out": "/tmp/a b"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.py --bias={bias}", ["train.py", "--bias=true"]),
        ("train.py --out {out}", ["train.py", "--out", "/tmp/a b"]),  # never split again
        ("train.py {bias?--bias} end", ["train.py", "--bias", "end"]),
        ("train.py '{{\"lr\": {lr}}}'", ["train.py", '{"lr": 1e-3}']),
        ("train.py --seed={seed} {args}", ["train.py", "--seed=0", "--bias=true", "--lr=1e-3"]),
        ("train.py --lr={lr} {args}", ["train.py", "--lr=1e-3", "--bias=true"]),
        ("train.py ''", ["train.py", ""]),
    ],
)
def test_fields_are_filled_inside_their_words(text, words):
    template, problems = read_template(text)
    assert not problems
    assert template.fill(VALUES) == words


def test_a_switch_that_is_off_leaves_no_word():
    template, _ = read_template("train.py {bias?--bias} end")
    assert template.fill({"bias": "false"}) == ["train.py", "end"]


def test_values_are_quoted_for_a_shell():
    template, _ = read_template("echo {out} | cat", in_shell=True)
    assert template.fill({"out": "a; rm b"}) == ["/bin/sh", "-c", "echo 'a; rm b' | cat"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("train.py 'a", "open quote"),
        ("train.py --x={", "single brace"),
        ("train.py {}", "field without a name"),
        ("train.py --x={args}", "a word of its own"),
        ("train.py --x=\"'{x}'\"", "keeps its quotes, since no shell reads it"),
    ],
)
def test_mistakes_in_a_command(text, message):
    _, problems = read_template(text)
    assert message in " ".join(map(str, problems))


def test_fields_are_known_by_name():
    assert Template(["a", "--x={x}{y?z}", "{{w}}"]).fields == {"x", "y"}
