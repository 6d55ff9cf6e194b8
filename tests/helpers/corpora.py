"""Texts of token ids, to compare with what was tokenised; texts in files of every format."""

import bz2
import gzip
import json
import lzma
from collections.abc import Iterable
from pathlib import Path

import pytest

from ablate.config.extra import extra
from ablate.data.corpus import Corpus
from ablate.data.tokenizer import PUBLISHED


def decoded(corpus: Corpus, ids: Iterable[int]) -> str:
    """Decode ids; bytes that are not UTF-8 become U+FFFD, words are joined by single spaces."""
    found = [int(i) for i in ids]
    match corpus.tokenizer:
        case "byte":
            return bytes(found).decode(errors="replace")
        case "char":
            return "".join(corpus.state[i] for i in found)
        case "word":
            known = json.loads(corpus.state)
            return " ".join(known[i] for i in found)
        case "token":
            return " ".join(map(str, found))
        case name if name in PUBLISHED:
            return str(extra("tiktoken", "decoding").get_encoding(name).decode(found))
    return str(
        extra("tokenizers", "decoding").Tokenizer.from_str(corpus.state).decode(found, skip_special_tokens=False)
    )


def write_rows(folder: Path, kind: str, rows: list[str]) -> Path:
    """Documents as a file, or files, of a format: the kind is the ending of their names."""
    folder.mkdir()
    lines = "".join(json.dumps({"id": i, "text": row}) + "\n" for i, row in enumerate(rows)).encode()
    if kind == "parquet":
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"id": range(len(rows)), "text": rows})
        pytest.importorskip("pyarrow.parquet").write_table(table, folder / "a.parquet", row_group_size=50)
    elif kind == "jsonl.zst":
        with pytest.importorskip("pyarrow").CompressedOutputStream(str(folder / "a.jsonl.zst"), "zstd") as stream:
            stream.write(lines)
    elif kind == "txt":
        for i, row in enumerate(rows):
            (folder / f"{i:05}.txt").write_text(row)
    else:
        compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(kind.split(".")[-1], bytes)
        (folder / f"a.{kind}").write_bytes(compress(lines))
    return folder
