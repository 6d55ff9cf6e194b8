"""Files of other programs, as each of them writes it."""

from pathlib import Path

import pytest

from ablate.config.errors import Refused
from ablate.runs.readers import read_settings, read_table


def rows(file: Path) -> list[dict[str, str]]:
    return [*read_table(file).values()]


TABLES: dict[str, tuple[str, str]] = {
    "a BOM": ("runs.csv", "\ufeffnorm,loss\nln,2.5\n"),
    "tabs, decimal commas": ("runs.tsv", "norm\tloss\nln\t2,5\n"),
    "semicolons, decimal commas": ("runs.csv", "norm;loss\nln;2,5\n"),
    "bars": ("runs.csv", "norm|loss\nln|2.5\n"),
    "quotes": ("runs.csv", '"norm","loss"\n"ln","2.5"\n'),
    "spaces": ("runs.csv", "norm , loss\n ln , 2.5\n"),
    "blank lines": ("runs.csv", "norm,loss\n\n,\nln,2.5\n"),
    "JSON lines": ("runs.jsonl", '{"norm": "ln", "loss": 2.5}\n\n{"norm": "ln", "loss": 2.5}\n'),
    "JSON lines called JSON": ("lines.json", '{"norm": "ln", "loss": 2.5}\n{"norm": "ln", "loss": 2.5}\n'),
    "a list": ("list.json", '[{"norm": "ln", "loss": 2.5}]'),
    "W&B's table": ("runs.table.json", '{"columns": ["norm", "loss"], "data": [["ln", 2.5]]}'),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table(tmp_path, kind):
    name, text = TABLES[kind]
    (tmp_path / name).write_text(text, newline="")
    assert rows(tmp_path / name)[0] == {"norm": "ln", "loss": "2.5"}


def test_a_table_in_utf_16(tmp_path):
    (tmp_path / "runs.csv").write_bytes("norm\tloss\nln\t2.5\n".encode("utf-16"))
    assert rows(tmp_path / "runs.csv") == [{"norm": "ln", "loss": "2.5"}]


def test_a_null_in_a_table_of_wandb_is_a_missing_value(tmp_path):
    (tmp_path / "runs.table.json").write_text('{"columns": ["seed", "loss"], "data": [[1, null], [2, 2.5]]}')
    assert rows(tmp_path / "runs.table.json") == [{"seed": "1", "loss": ""}, {"seed": "2", "loss": "2.5"}]


def test_a_comma_between_commas_is_no_decimal_one(tmp_path):
    (tmp_path / "runs.csv").write_text('norm,tokens\nln,"1,024"\n')
    assert rows(tmp_path / "runs.csv")[0]["tokens"] == "1,024"


def test_nested_settings_of_json_have_dotted_names_and_acting_characters_are_escaped(tmp_path):
    (tmp_path / "runs.jsonl").write_text('{"optim": {"betas": [0.9, 0.95]}, "n": "a\\u001b[31m", "x": null, "y": NaN}')
    row = {"optim.betas": "[0.9, 0.95]", "n": "a\\x1b[31m", "x": "", "y": "nan"}
    assert rows(tmp_path / "runs.jsonl") == [row]


def test_settings_of_lightning_with_tuples_and_classes(tmp_path):
    text = "betas: !!python/tuple\n- 0.9\n- 0.95\nact: !!python/name:torch.nn.modules.activation.GELU ''\nnorm: rms\n"
    (tmp_path / "hparams.yaml").write_text(text)
    settings = {"betas": [0.9, 0.95], "act": "torch.nn.modules.activation.GELU", "norm": "rms"}
    assert read_settings(tmp_path) == settings


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "empty": ("runs.csv", b"", "there are no rows below the names of the columns; write a row per run"),
    "a zip file": ("runs.csv", b"\x00\x01\x02PK\x03\x04", "write a row per run"),
    "another encoding": ("runs.csv", b"a,\xff\n", "it is not text in UTF-8 or UTF-16"),
    "a name twice": ("runs.csv", b"ffn,seed,ffn,loss\na,0,b,1\n", "two columns are called ffn"),
    "a field too many": (
        "runs.csv",
        b"ffn,seed,loss\na,0,2\n\nb,1,2,3\n",
        "line 4 has 4 fields, and there are 3 columns",
    ),
    "half a line": ("runs.jsonl", b'{"a": 1}\n{"a": \n', "line 2: this is no JSON"),
    "numbers": ("runs.json", b"[1, 2]", "it holds other values than objects"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_table_is_refused(tmp_path, kind):
    name, content, said = REFUSED[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Refused) as refused:
        read_table(tmp_path / name)
    assert said in str(refused.value) and "\n" not in str(refused.value)
