"""A study as a folder of small tables that can be stored without its runs, for example in a repository.

    manifest.json    the study's manifest
    runs.csv         `Study.runs`
    curves.csv       `Study.curves`: each run's evaluations, and its first and last logged step
    documents.csv    `Study.documents`: rows by text, name and tokens; a column per run, named <cell>/<seed>
    tables.json      which columns hold text, the study's notes, and the checksum of each file
    verdicts.json    of a study with claims: how each was judged, which a later change of method does not change
    ladder.csv       of a ladder that was judged by an earlier method: the contents of its figure, which stay
    exchange/        the same files for the references trained for other numbers of steps

Numbers have full precision.  Nothing here needs torch, and nothing that is read is executed.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import shlex
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ablate.config.errors import Corrupt
from ablate.config.files import parse_json, read_regular
from ablate.config.typed_json import Record
from ablate.formatting import quoted, show, unquoted
from ablate.runs.files import Sum, read_record, sum_of, write_atomic, write_json
from ablate.runs.folder import verify_sum
from ablate.runs.manifest import manifest_in, newer
from ablate.runs.records import Manifest, StudyVerdicts
from ablate.runs.study import Study
from ablate.runs.tables import DOCUMENT, EACH_STEP, by_document, curve_column, curves_of

if TYPE_CHECKING:
    import pandas

INDEX, MANIFEST, RUNS, CURVES, DOCUMENTS = "tables.json", "manifest.json", "runs.csv", "curves.csv", "documents.csv"
VERDICTS, LADDER = "verdicts.json", "ladder.csv"
COMPANIONS = {"exchange": f"exchange/{INDEX}"}
RUN_COLUMNS = ["cell", "label", "seed", "path"]  # the columns of curves that identify a run
ABOVE = re.compile(r"[^\s()]*/(?=(runs|studies)/)")  # the machine-specific start of a path in results


class Index(Record):
    """The content of tables.json."""

    files: dict[str, Sum]
    texts: dict[str, list[str]]
    notes: list[str]


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds the tables of a study, complete or not."""
    return (folder / INDEX).is_file() or all((folder / name).is_file() for name in (MANIFEST, RUNS))


def write_tables(study: Study, folder: Path) -> list[Path]:
    """Write the tables of a study into a folder, replacing those in it; returns the files."""
    levels = {name: study.runs[name].map(show) for name in study.manifest.factors if name in study.runs}
    losses = study.documents.set_axis([f"{cell}/{seed}" for cell, seed in study.documents], axis=1)
    # Of curves each run's evaluations and its first and last row, identified by cell and seed alone.
    known = [*map(curve_column, study.manifest.factors), "label", "path"]
    curves = study.curves.drop(columns=known, errors="ignore")
    logged = [name for name in curves if name not in (*RUN_COLUMNS, *EACH_STEP) and not name.startswith("train/")]
    ends = [~curves.duplicated(["cell", "seed"], keep=keep) for keep in ("first", "last")]
    curves = curves[curves[logged].notna().any(axis=1) | ends[0] | ends[1]]
    found = {RUNS: study.runs.assign(**levels), CURVES: curves, DOCUMENTS: losses.reset_index()}
    tables = {name: table for name, table in found.items() if len(table)}
    write_json(folder / MANIFEST, anywhere(study.manifest).as_json())
    for name in found:
        if name in tables:
            write_atomic(folder / name, as_csv(tables[name]))
        else:
            (folder / name).unlink(missing_ok=True)
    inner = [file for role, other in study.beside.items() for file in write_tables(other, folder / role)]
    names = [MANIFEST, *tables, *(COMPANIONS[role] for role in study.beside)]
    sums = {name: sum_of((folder / name).read_bytes()) for name in names}
    texts = {name: texts_of(table) for name, table in tables.items()}
    notes = [ABOVE.sub("", note) for note in study.notes]
    write_json(folder / INDEX, Index(files=sums, texts=texts, notes=notes).as_json())
    return [*(folder / name for name in (MANIFEST, *tables, INDEX)), *inner]


def read_tables(folder: Path) -> Study:
    """Read a study from its folder of tables.  Raises `Corrupt`, which names the missing or damaged file."""
    file = folder / INDEX
    try:
        kept = read_record(Index, file)
    except FileNotFoundError:
        raise Corrupt(f"{file} is missing: without it the tables cannot be verified") from None
    if not {MANIFEST, RUNS} <= kept.files.keys() <= {MANIFEST, RUNS, CURVES, DOCUMENTS, *COMPANIONS.values()}:
        raise Corrupt(f"{file} is damaged: it was changed after it was written")
    for name, written in kept.files.items():
        verify_sum(folder / name, written, "the study's tables are not whole")
    manifest = manifest_in(folder / MANIFEST)
    tables = {}
    for name in (name for name in kept.files if name.endswith(".csv")):
        try:
            tables[name] = from_csv(read_regular(folder / name), kept.texts.get(name, []))
        except ValueError as error:
            raise Corrupt(f"{folder / name} cannot be read as a table ({error})") from None
    try:
        runs, curves, losses = _restored(tables, manifest)
    except (KeyError, ValueError) as error:
        raise Corrupt(f"{file} is of tables that do not fit its study ({error})") from None
    beside = {role: read_tables(folder / role) for role, name in COMPANIONS.items() if name in kept.files}
    notes = list(dict.fromkeys([*kept.notes, *newer(manifest)]))
    verdicts = read_verdicts(folder)
    judged = verdicts.claims if verdicts else {}
    return Study(manifest, runs, curves, notes, beside, losses, verdicts=judged, figures=read_figures(folder))


def read_figures(folder: Path) -> dict[str, pandas.DataFrame]:
    """The contents of figures that were drawn by an earlier method and stay as they were.  Raises `Corrupt`."""
    import pandas

    file = folder / LADDER
    if not file.is_file():
        return {}
    try:
        return {file.stem: pandas.read_csv(io.BytesIO(read_regular(file)))}
    except ValueError as error:
        raise Corrupt(f"{file} cannot be read as a table ({error})") from None


def read_verdicts(folder: Path) -> StudyVerdicts | None:
    """How the claims of a study were judged; None if its folder does not say.  Raises `Corrupt`."""
    try:
        return read_record(StudyVerdicts, folder / VERDICTS)
    except FileNotFoundError:
        return None


def write_verdicts(verdicts: StudyVerdicts, folder: Path) -> None:
    """Write how the claims of a study were judged."""
    write_json(folder / VERDICTS, verdicts.as_json())


def anywhere(manifest: Manifest) -> Manifest:
    """A manifest without paths of one machine: those of its results and of the user's variants."""
    cells = [replace(cell, config=replace(cell.planned_config, results_dir="results")) for cell in manifest.cells]
    typed = [word for word in shlex.split(manifest.command) if not word.startswith("results_dir=")]
    words = itertools.pairwise(["", *typed])
    typed = [Path(word).name if before == "--config-dir" else word for before, word in words]
    return replace(manifest, cells=cells, command=shlex.join(typed))


def _restored(tables: dict[str, pandas.DataFrame], manifest: Manifest) -> tuple[pandas.DataFrame, ...]:
    """Runs, curves and documents as in `Study`, with typed levels from the manifest in place of those in the CSV: 1e-05
    is a number, null is None."""
    import pandas

    runs, curves, losses = tables[RUNS], curves_of([]), by_document({})
    of_cells = {cell.id: cell.levels for cell in manifest.cells}
    columns = {name: curve_column(name) for name in manifest.factors if name in runs}
    levels = {name: [of_cells[cell].get(name, math.nan) for cell in runs["cell"]] for name in columns}
    runs = runs.assign(**{name: pandas.Series(column) for name, column in levels.items()})
    if CURVES in tables:
        of_runs = runs.set_index(["cell", "seed"])[["label", "path", *columns]].rename(columns=columns)
        curves = tables[CURVES].join(of_runs, on=["cell", "seed"])
        last = [*RUN_COLUMNS, *columns.values()]
        curves = curves[[*(name for name in curves if name not in last), *last]]
    if DOCUMENTS in tables:
        losses = tables[DOCUMENTS].set_index(list(DOCUMENT))
        whose = [(cell, int(seed)) for cell, _, seed in (name.rpartition("/") for name in losses)]
        losses = losses.set_axis(pandas.MultiIndex.from_tuples(whose, names=("cell", "seed")), axis=1)
    return runs, curves, losses


def texts_of(table: pandas.DataFrame) -> list[str]:
    """The columns that hold at least one text."""
    return [str(name) for name in table if any(isinstance(value, str) for value in table[name])]


def as_csv(table: pandas.DataFrame) -> bytes:
    """A table as CSV; `from_csv` with `texts_of` the table restores it exactly."""
    texts, rows = texts_of(table), list[str]()
    as_text = lambda value: quoted(value) if isinstance(value, str) else ""  # noqa: E731
    as_number = lambda value: "" if isinstance(value, float) and math.isnan(value) else json.dumps(value)  # noqa: E731
    columns = [map(as_text if name in texts else as_number, table[name].tolist()) for name in table]
    # With its own line ends, the writer quotes a lone \r, which would end a row.
    csv.writer(SimpleNamespace(write=rows.append)).writerows([map(quoted, table), *zip(*columns, strict=True)])
    return "".join(row.removesuffix("\r\n") + "\n" for row in rows).encode()


def from_csv(data: bytes, texts: Collection[str]) -> pandas.DataFrame:
    """Read a table from CSV; `texts` names its columns of text.  Raises ValueError if it is malformed."""
    import pandas

    try:
        rows = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    names = [unquoted(name) for name in rows[0]] if rows else []
    if len(set(names)) < len(names) or any(len(row) != len(names) for row in rows):
        raise ValueError("its rows and its columns do not fit")
    found = {}
    for name, fields in zip(names, zip(*rows[1:], strict=True) if rows[1:] else ([] for _ in names), strict=True):
        if name in texts:
            found[name] = pandas.Series([unquoted(field) if field else None for field in fields])
            continue
        values = parse_json(f"[{','.join(field or 'NaN' for field in fields)}]")
        if len(values) != len(fields) or not all(isinstance(each, int | float | None) for each in values):
            raise ValueError("a column of numbers holds something else")
        found[name] = pandas.Series(values, dtype=object if None in values else None)
    return pandas.DataFrame(found)
