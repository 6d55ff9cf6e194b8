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

import io
import json
import math
import re
import shlex
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

INDEX = "tables.json"
MANIFEST = "manifest.json"
RUNS = "runs.csv"
CURVES = "curves.csv"
DOCUMENTS = "documents.csv"
VERDICTS = "verdicts.json"
LADDER = "ladder.csv"
EXCHANGE = f"exchange/{INDEX}"
RUN = ["cell", "seed"]  # the columns that identify a run
ABOVE = re.compile(r"[^\s()]*/(?=(runs|studies)/)")  # the machine-specific start of a path in results


class Index(Record):
    """The content of tables.json."""

    files: dict[str, Sum]
    texts: dict[str, list[str]]
    notes: list[str]


def holds_tables(folder: Path) -> bool:
    """Whether a folder holds the tables of a study, complete or not."""
    return (folder / INDEX).is_file() or all((folder / name).is_file() for name in (MANIFEST, RUNS))


def write_tables(study: Study, folder: Path) -> None:
    """Write the tables of a study into a folder, replacing those in it."""
    levels = {name: study.runs[name].map(show) for name in study.manifest.factors if name in study.runs}
    documents = study.documents.set_axis([f"{cell}/{seed}" for cell, seed in study.documents], axis=1)
    tables = {RUNS: study.runs.assign(**levels), CURVES: evaluations(study), DOCUMENTS: documents.reset_index()}
    names = [MANIFEST]
    texts = {}
    write_json(folder / MANIFEST, portable(study.manifest).as_json())
    for name, table in tables.items():
        if table.empty:
            (folder / name).unlink(missing_ok=True)
            continue
        write_atomic(folder / name, as_csv(table))
        names.append(name)
        texts[name] = texts_of(table)
    if "exchange" in study.beside:
        write_tables(study.beside["exchange"], folder / "exchange")
        names.append(EXCHANGE)
    sums = {name: sum_of((folder / name).read_bytes()) for name in names}
    notes = [ABOVE.sub("", note) for note in study.notes]
    write_json(folder / INDEX, Index(files=sums, texts=texts, notes=notes).as_json())


def evaluations(study: Study) -> pandas.DataFrame:
    """The rows of curves with an evaluation, and the first and the last one of each run, without what runs.csv has."""
    factors = [curve_column(name) for name in study.manifest.factors]
    curves = study.curves.drop(columns=[*factors, "label", "path"], errors="ignore")
    evaluated = [name for name in curves if name not in (*RUN, *EACH_STEP) and not name.startswith("train/")]
    is_evaluation = curves[evaluated].notna().any(axis=1)
    is_first = ~curves.duplicated(RUN, keep="first")
    is_last = ~curves.duplicated(RUN, keep="last")
    return curves[is_evaluation | is_first | is_last]


def portable(manifest: Manifest) -> Manifest:
    """A manifest without paths of one machine: those of its results and of the user's variants."""
    cells = []
    for cell in manifest.cells:
        config = replace(cell.config, results_dir="results") if cell.config else None
        cells.append(replace(cell, config=config))
    words: list[str] = []
    for word in shlex.split(manifest.command):
        if words and words[-1] == "--config-dir":
            words.append(Path(word).name)
        elif not word.startswith("results_dir="):
            words.append(word)
    return replace(manifest, cells=cells, command=shlex.join(words))


def read_tables(folder: Path) -> Study:
    """Read a study from its folder of tables.  Raises `Corrupt`, which names the missing or damaged file."""
    file = folder / INDEX
    try:
        index = read_record(Index, file)
    except FileNotFoundError:
        raise Corrupt(f"{file} is missing: without it the tables cannot be verified") from None
    if not {MANIFEST, RUNS} <= index.files.keys() <= {MANIFEST, RUNS, CURVES, DOCUMENTS, EXCHANGE}:
        raise Corrupt(f"{file} is damaged: it was changed after it was written")
    for name, written in index.files.items():
        verify_sum(folder / name, written, "the study's tables are not whole")
    manifest = manifest_in(folder / MANIFEST)
    tables = {}
    for name in index.files:
        if name.endswith(".csv"):
            tables[name] = read_csv(folder / name, index.texts.get(name, []))
    try:
        runs = with_levels(tables[RUNS], manifest)
        curves = with_runs(tables[CURVES], runs, manifest) if CURVES in tables else curves_of([])
        documents = by_run(tables[DOCUMENTS]) if DOCUMENTS in tables else by_document({})
    except (KeyError, ValueError) as error:
        raise Corrupt(f"{file} is of tables that do not fit its study ({error})") from None
    verdicts = read_verdicts(folder)
    return Study(
        manifest,
        runs,
        curves,
        notes=list(dict.fromkeys([*index.notes, *newer(manifest)])),
        beside={"exchange": read_tables(folder / "exchange")} if EXCHANGE in index.files else {},
        documents=documents,
        verdicts=verdicts.claims if verdicts else {},
        figures=read_figures(folder),
    )


def with_levels(runs: pandas.DataFrame, manifest: Manifest) -> pandas.DataFrame:
    """Runs with the levels of the manifest in place of the texts in the CSV: 1e-05 is a number, null is None."""
    import pandas

    levels = {cell.id: cell.levels for cell in manifest.cells}
    for name in manifest.factors:
        if name in runs:
            runs[name] = pandas.Series([levels[cell].get(name) for cell in runs["cell"]])
    return runs


def with_runs(curves: pandas.DataFrame, runs: pandas.DataFrame, manifest: Manifest) -> pandas.DataFrame:
    """Curves with the columns of runs that identify each row."""
    columns = {name: curve_column(name) for name in manifest.factors if name in runs}
    of_runs = runs[[*RUN, "label", "path", *columns]].rename(columns=columns)
    logged = [name for name in curves if name not in RUN]
    curves = curves.merge(of_runs, on=RUN, how="left")
    return curves[[*logged, "cell", "label", "seed", "path", *columns.values()]]


def by_run(table: pandas.DataFrame) -> pandas.DataFrame:
    """Losses by document, with a column per cell and seed."""
    import pandas

    losses = table.set_index(list(DOCUMENT))
    runs = []
    for name in losses:
        cell, _, seed = name.rpartition("/")
        runs.append((cell, int(seed)))
    return losses.set_axis(pandas.MultiIndex.from_tuples(runs, names=RUN), axis=1)


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


def texts_of(table: pandas.DataFrame) -> list[str]:
    """The columns that hold at least one text."""
    has_text = table.map(lambda value: isinstance(value, str)).any()
    return [str(name) for name in table.columns[has_text]]


def as_csv(table: pandas.DataFrame) -> bytes:
    """A table as CSV; `read_csv` with `texts_of` the table restores it."""
    import pandas

    texts = texts_of(table)
    columns = {}
    for name in table:
        field = text_field if name in texts else json_field
        columns[quoted(name)] = [field(value) for value in table[name].tolist()]
    return pandas.DataFrame(columns).to_csv(index=False, lineterminator="\n").encode()


def text_field(value: Any) -> str:
    """A text in a CSV, where it is no formula of a spreadsheet; what is no text is empty.  A carriage return, which
    would end a row, becomes a line feed."""
    return str(quoted(value.replace("\r", "\n"))) if isinstance(value, str) else ""


def json_field(value: Any) -> str:
    """A number, true, false or null in a CSV; NaN is empty."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return "" if is_nan else json.dumps(value)


def read_csv(file: Path, texts: Collection[str]) -> pandas.DataFrame:
    """The table in a CSV that `as_csv` wrote; `texts` names its columns of text.  Raises `Corrupt`."""
    import pandas

    columns = {}
    try:
        table = pandas.read_csv(io.BytesIO(read_regular(file)), dtype=str, keep_default_na=False)
        for name, fields in table.items():
            if unquoted(name) in texts:
                values = [unquoted(field) if field else None for field in fields]
                columns[unquoted(name)] = pandas.Series(values)
            else:
                values = parse_json(f"[{','.join(field or 'NaN' for field in fields)}]")
                columns[unquoted(name)] = pandas.Series(values, dtype=object if None in values else None)
        return pandas.DataFrame(columns)
    except ValueError as error:
        raise Corrupt(f"{file} cannot be read as a table ({error})") from None
