"""Metadata in a figure's file: the study, hashes of what is drawn and of the runs, the command."""

import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas

from ablate.config.files import parse_json
from ablate.runs.study import Study
from analysis.figures.kind import Page

MARK = "ablate figure "
Stamp = dict[str, str]
MOST = 2000  # runs up to which each run is hashed


def stamp_of(name: str, table: pandas.DataFrame, page: Page, study: Study) -> Stamp:
    """The metadata for a figure's file."""
    manifest = study.manifest
    stamp = {
        "study": manifest.study,
        "figure": name,
        "table": table_hash(table, page),
        "edits": page_hash(page),
        "command": f"ablate analyse {manifest.study}",
    }
    if manifest.source:  # imported runs
        stamp |= {"command": manifest.command, "source": manifest.source}
    if len(study.runs) <= MOST:
        stamp["runs"] = run_hashes(study)
    return stamp


def metadata(stamped: Stamp) -> dict[str, str]:
    """The stamp as metadata entries of PDF and PNG: a title, the command, and the whole stamp as ASCII JSON."""
    keywords = MARK + json.dumps(stamped, separators=(",", ":"), sort_keys=True)
    return {"Title": f"{stamped['figure']} of {stamped['study']}", "Subject": stamped["command"], "Keywords": keywords}


def table_hash(table: pandas.DataFrame, page: Page) -> str:
    """SHA-256 of the columns, values and attributes of a figure's table and of its page settings, with numbers to ten
    digits.  The caption counts only if the page draws it, since otherwise it does not change the figure."""
    values = {str(name): [_plain(value) for value in table[name].tolist()] for name in table}
    attributes = {name: value for name, value in table.attrs.items() if name != "caption" or page.caption}
    return _digest([list(map(str, table.columns)), values, _plain(attributes), page_hash(page)])


def page_hash(page: Page) -> str:
    """SHA-256 of the page's width, style, caption, labels and encodings."""
    colours = sorted((factor, level, colour) for (factor, level), colour in page.colours.items())
    labels = sorted((page.manifest.shown or {}).items())
    style = [] if page.style == "default" else [page.style]
    return _digest([_plain(page.width), page.caption, labels, colours, _plain(page.encodings), *style])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """A value for JSON, with numbers as texts of ten digits, since sums may be computed in another order."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, bool | np.bool_) or value is None:
        return None if value is None else bool(value)
    if isinstance(value, int | float | np.integer | np.floating):
        return f"{float(value) + 0.0:.10g}" if math.isfinite(value) else None
    return str(value)


def run_hashes(study: Study) -> str:
    """A hash of eight digits for each run, in order, over its final values and its curve."""
    columns = ["cell", "seed", "status", *sorted(name for name in study.runs if "/" in str(name))]
    levels = [name for name in study.manifest.factors if name != "cell"]  # of runs without other factors it is one
    curves = study.curves.drop(columns=levels, errors="ignore")
    curves = curves.filter(regex="^(cell|seed|step|tokens|seconds|.*/.*)$").sort_index(axis="columns")
    logged: dict[Any, int] = {}
    if len(curves):
        each = pandas.util.hash_pandas_object(curves, index=False)
        logged = each.groupby([curves["cell"], curves["seed"]], sort=False).sum().to_dict()
    return ",".join(
        f"{row['cell']}/{row['seed']}:{_digest([_plain(row), int(logged.get((row['cell'], row['seed']), 0))])[:8]}"
        for row in study.runs[columns].to_dict("records")
    )


def read_stamp(data: bytes) -> Stamp | None:
    """The stamp of a PDF or a PNG, or None if it has none."""
    texts = _pdf_texts(data) if data.startswith(b"%PDF") else _png_texts(data)
    found = next((text.removeprefix(MARK) for text in texts if text.startswith(MARK)), None)
    try:
        stamped = parse_json(found) if found else None
    except ValueError:
        return None
    if not isinstance(stamped, dict) or not {"study", "figure", "table", "command"} <= set(stamped):
        return None
    return stamped if all(isinstance(text, str) for text in stamped.values()) else None


def _pdf_texts(data: bytes) -> Iterable[str]:
    """The literal strings of the Info entry Keywords, which matplotlib escapes with backslashes."""
    for match in re.finditer(rb"/Keywords\s*\(((?:[^\\()]|\\.)*)\)", data, re.DOTALL):
        yield re.sub(rb"\\(.)", rb"\1", match[1], flags=re.DOTALL).decode("latin-1")


def _png_texts(data: bytes) -> Iterable[str]:
    import io

    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            return [text for text in image.info.values() if isinstance(text, str)]  # decodes no pixels
    except Exception:  # Pillow raises anything on damaged bytes
        return []
