"""Files that never end, tags that make objects of plain data, nesting without end: a line each, never a hang."""

import json
import os
from pathlib import Path

import pytest

from ablate.config.errors import Corrupt
from ablate.config.files import parse_json, parse_plain, read_regular
from analysis.cli.main import main as analyse

DEEP_YAML = "a: " + "[" * 30_000


def put_pipe(file: Path) -> None:
    """A pipe that nobody writes into, in place of a file."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)


@pytest.mark.usefixtures("undrawn")
def test_pipes_and_deep_files_of_runs_end_no_command(folders, run_commands):
    for name in ("result.json", "lock", "evaluation.json", "config.yaml"):
        put_pipe(folders[0] / name)
    for name in ("metrics.jsonl", "evaluation.json"):
        put_pipe(folders[1] / name)
    (folders[1] / "config.yaml").write_text(DEEP_YAML)
    (folders[1] / "lease.json").write_text("[" * 30_000)
    printed = run_commands()["analysis export"][1]
    assert "result.json" in printed
    assert "metrics.jsonl" in printed


@pytest.mark.parametrize(
    ("name", "reason"), [("zero", "no file"), ("pipe", "no file"), ("large", "more than 4 bytes"), ("", "directory")]
)
def test_only_regular_files_of_some_size_are_read(name, reason, tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    put_pipe(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    with pytest.raises(OSError, match=reason):
        read_regular(tmp_path / name, most=4)


BILLION = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
for level in range(1, 12):
    BILLION.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
CHAIN = ["a0: &a0 [x]", *(f"a{level}: &a{level} [*a{level - 1}]" for level in range(1, 60))]
NO_PLAIN_DATA = {
    "a tag of YAML": ("a: !!timestamp 2020-01-01", "!!timestamp is more than plain data"),
    "open lists": ("[" * 30_000, "more than 50 levels deep"),
    "an object": ("a: !!python/object/apply:os.mknod [canary]", "more than plain data"),
    "levels by aliases": ("\n".join(CHAIN), "more than 50 levels deep"),
    "itself": ("a: &a [*a]", "it refers to itself"),
    "a billion values": ("\n".join(BILLION), "more than a file can hold"),
}


@pytest.mark.parametrize("case", NO_PLAIN_DATA)
def test_yaml_is_plain_data_that_is_neither_deep_nor_endless(case):
    text, reason = NO_PLAIN_DATA[case]
    with pytest.raises(Corrupt, match=f"^f.yaml is not readable as YAML [^\n]*{reason}[^\n]*$"):
        parse_plain(text, "f.yaml")


def test_json_nested_too_deep_is_an_error_of_its_text():
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json("[" * 30_000)


@pytest.mark.parametrize("name", ["config.json", "hparams.yaml"])
def test_a_deep_file_of_another_program_is_a_line(name, tmp_path, capsys):
    state = {"log_history": [{"step": 1, "loss": 2.0}], "global_step": 1, "max_steps": 1}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / name).write_text("[" * 30_000)
    assert analyse(["--runs", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert name in line
    assert "50 levels deep" in line or "nested too deep" in line


def test_a_key_is_given_once_in_a_mapping():
    with pytest.raises(Corrupt, match=r"x is given twice, line 3"):
        parse_plain("y: {z: 1,\n  x: 1,\n  x: 2}", "f.yaml")


def test_an_error_of_yaml_names_its_line():
    with pytest.raises(Corrupt, match=r"did not find expected ',' or '\]', line 3"):
        parse_plain("a: 1\nb: [1\nc: 2\n", "f.yaml")


def test_a_merged_key_may_be_given_again():
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: *a, <<: *b, x: 3}\n"
    assert parse_plain(text, "f.yaml")["c"] == {"x": 3, "y": 2}


def test_a_date_is_a_text_as_hydra_reads_it():
    assert parse_plain("question: 2020-01-01", "f.yaml") == {"question": "2020-01-01"}
