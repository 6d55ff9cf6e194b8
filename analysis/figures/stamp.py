"""Metadata in a figure's file: the study, hashes of what is drawn and of the runs, the command."""

import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pandas
from PIL import Image

from ablate.config.files import parse_json
from ablate.runs.study import Study
from analysis.figures.kind import Page

MARK = "ablate figure "
Stamp = dict[str, str]


def stamp_of(name: str, table: pandas.DataFrame, page: Page, study: Study) -> Stamp:
    """The metadata for a figure's file."""
    manifest = study.manifest
    stamp = {
        "study": manifest.study,
        "figure": name,
        "table": table_hash(table, page),
        "command": f"ablate analyse {manifest.study}",
        "runs": run_hashes(study),
    }
    if manifest.source:  # imported runs
        stamp |= {"command": manifest.command, "source": manifest.source}
    return stamp


def metadata(stamped: Stamp) -> dict[str, str]:
    """The stamp as metadata entries of PDF and PNG: a title, the command, and the whole stamp as ASCII JSON."""
    keywords = MARK + json.dumps(stamped, separators=(",", ":"), sort_keys=True)
    return {"Title": f"{stamped['figure']} of {stamped['study']}", "Subject": stamped["command"], "Keywords": keywords}


def table_hash(table: pandas.DataFrame, page: Page) -> str:
    """A hash of what is drawn: the columns, values (numbers to ten digits) and attributes of the table except the
    caption, and the page's width, names and encodings."""
    attributes = {name: value for name, value in table.attrs.items() if name != "caption"}
    colours = sorted((*key, colour) for key, colour in page.colours.items())
    of_page = [rounded(page.width), page.manifest.shown, colours, page.encodings]
    drawn = json.dumps([table.map(rounded).to_csv(index=False), attributes, of_page], sort_keys=True, default=str)
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def rounded(value: Any) -> str:
    """A value as text, numbers with ten digits, since sums may be computed in another order."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return f"{value + 0.0:.10g}" if is_number else str(value)


def run_hashes(study: Study) -> str:
    """A hash of each run, in order, over its final values and its curve."""
    run = ["cell", "seed"]
    results = study.runs[[*run, "status", *sorted(name for name in study.runs if "/" in str(name))]]
    hashes = pandas.util.hash_pandas_object(results.map(rounded), index=False)
    curves = study.curves.filter(regex="^(cell|seed|step|tokens|seconds|.*/.*)$").sort_index(axis="columns")
    if len(curves):
        rows = pandas.util.hash_pandas_object(curves, index=False)
        logged = rows.groupby([curves["cell"], curves["seed"]]).sum().rename("logged")
        hashes += study.runs[run].join(logged, on=run)["logged"].fillna(0).astype("uint64")
    runs = zip(study.runs["cell"], study.runs["seed"], hashes, strict=True)
    return ",".join(f"{cell}/{seed}:{value % 2**32:08x}" for cell, seed, value in runs)


def read_stamp(data: bytes) -> Stamp | None:
    """The stamp of a PDF or a PNG, or None if it has none."""
    texts = pdf_texts(data) if data.startswith(b"%PDF") else png_texts(data)
    stamps = [text.removeprefix(MARK) for text in texts if text.startswith(MARK)]
    try:
        stamp = msgspec.convert(parse_json(stamps[0]), Stamp) if stamps else {}
    except (ValueError, msgspec.ValidationError):
        return None
    return stamp if {"study", "figure", "table", "command"} <= stamp.keys() else None


def pdf_texts(data: bytes) -> Iterable[str]:
    """The literal strings of the Info entry Keywords, which matplotlib escapes with backslashes."""
    for match in re.finditer(rb"/Keywords\s*\(((?:[^\\()]|\\.)*)\)", data, re.DOTALL):
        yield re.sub(rb"\\(.)", rb"\1", match[1], flags=re.DOTALL).decode("latin-1")


def png_texts(data: bytes) -> Iterable[str]:
    """The texts in a PNG."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            return [text for text in image.info.values() if isinstance(text, str)]  # decodes no pixels
    except Exception:  # Pillow raises anything on damaged bytes
        return []
