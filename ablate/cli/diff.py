"""Differences between two cells or runs: configuration, size, provenance, result."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ablate import formatting
from ablate.config.errors import Refused
from ablate.config.files import read_plain
from ablate.config.schema import NO_NUMBERS, STUDY_KEYS
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import columns, flat, instead
from ablate.results import naming
from ablate.results.manifest import choose_study, manifest_of, readable, studies
from ablate.results.records import Cell, Manifest, PlannedRun, Provenance, Result
from ablate.results.run import Run
from ablate.results.tables import class_name

SIZES = ("params", "flops_per_token")
ABSENT, UNKNOWN = "absent", "unknown"
SHOWN = 8  # digits of a digest that are shown
OF_STUDIES = ("design", "zip", "match", "tune", "margin", "tier")  # keys that change no numbers of a run
NEAR = 3  # a study is like another one if at most so many keys differ


class Side(NamedTuple):
    """A cell or a run: its name, flattened configuration and sizes; for a run also its files and what they hold."""

    name: str
    config: dict[str, Any]
    sizes: dict[str, Any]
    run: Run | None = None
    result: Result | None = None
    provenance: Provenance | None = None


class Row(NamedTuple):
    """One difference; `change` is its size as text, if known."""

    section: str
    key: str
    first: Any
    second: Any
    change: str = ""


def main(arguments: list[str] | None = None) -> int:
    """Print the differences; returns the exit code."""
    parser = Parser("ablate diff", "What differs between two cells or runs.")
    usage = "a run's folder, the beginning of <cell>/<key>, or of a study a cell's label or id, or 'label s3'"
    parser.add_argument("first", metavar="A", help=usage)
    parser.add_argument("second", metavar="B", help="likewise")
    parser.add_argument("--study", metavar="NAME", help="the study of labels and ids; without it the newest")
    given = parser.parse_args(arguments)

    def act() -> Outcome:
        first, second = (find(given.results_dir, text, given.study) for text in (given.first, given.second))
        rows = compare(first, second)
        print(show(first, second, rows))
        return Outcome(0, {"a": first.name, "b": second.name, "differences": rows})

    return conclude(parser.prog, given.json, act)


def compare(first: Side, second: Side) -> list[Row]:
    """The differences between two cells or runs, in the order of display."""
    rows = list[Row]()
    for row in _unequal("configuration", first.config, second.config):
        moved = row.key.endswith("_target_") and class_name(row.first) == class_name(row.second)
        idle = moved or row.key.partition(".")[0] in STUDY_KEYS or row.key in NO_NUMBERS
        rows.append(row._replace(section="without effect on numbers") if idle else row)
    rows.sort(key=lambda row: row.section)
    for row in _unequal("size", first.sizes, second.sizes, UNKNOWN):
        known = isinstance(row.first, int | float) and isinstance(row.second, int | float) and row.first
        rows.append(row._replace(change=formatting.percent(row.second / row.first - 1) if known else ""))
    if not (first.run and second.run) or is_same_run(first, second):
        return rows
    one, other = _origin(first), _origin(second)
    shared = one.keys() & other.keys()  # values that only one side has cannot be compared
    rows += [row for row in _unequal("provenance", one, other) if row.key in shared]
    if first.provenance and second.provenance:  # digests of definitions that only one side uses
        both = [side.definitions for side in (first.provenance, second.provenance)]
        alone = {*both[0].values()} ^ {*both[1].values()}
        codes = [{f"code of {name}": code[:SHOWN] for name, code in each.items() if code in alone} for each in both]
        rows += _unequal("provenance", codes[0], codes[1])
    rows += _unequal("result", {"status": _status(first)}, {"status": _status(second)})
    finals = [side.result.final if side.result else {} for side in (first, second)]
    for key in dict.fromkeys([*finals[0], *finals[1]]) if finals[0] != finals[1] else ():
        a, b = (final.get(key) for final in finals)
        change = "" if a is None or b is None else formatting.plus(b - a, ".4g")
        rows.append(Row("result", key, UNKNOWN if a is None else a, UNKNOWN if b is None else b, change))
    return rows


def study_differences(first: Manifest, second: Manifest) -> list[Row]:
    """How two studies differ in settings: between cells with equal levels of their common factors, or between the first
    cells if there are none; each key once."""
    common, found = first.factors.keys() & second.factors.keys(), dict[str, Row]()
    one, other = (
        {str([cell.levels.get(factor) for factor in common]): cell for cell in reversed(each.cells)}
        for each in (first, second)
    )
    alike = [(one[levels], other[levels]) for levels in one if levels in other]
    for pair in alike or [(first.cells[0], second.cells[0])]:
        for row in compare(*(_cell_side(Path(), cell, None) for cell in pair)):
            matters = row.section != "without effect on numbers" or row.key.partition(".")[0] in OF_STUDIES
            if matters and row.key != "seed":
                found.setdefault(row.key, row._replace(section="size" if row.section == "size" else "settings"))
        if pair[0].task != pair[1].task and not any(key.startswith("data.") for key in found):  # other texts, say
            sides = zip((first, second), pair, strict=True)
            texts = (f"{each.tasks[cell.task].name} ({cell.task[:8]})" for each, cell in sides)
            found.setdefault("data", Row("settings", "data", *texts))
    return list(found.values())


def similar_study(results: Path, manifest: Manifest) -> str:
    """The study on disk with the factors of a new one and the fewest other settings: "like X but for optim.lr 0.001 →
    0.003"; empty if the study is not new, or none is near."""
    there, near = studies(results), list[tuple[int, str]]()
    if manifest.study in there or naming.role(manifest):
        return ""
    for other in filter(None, (readable(results, name) for name in there)):
        if other.factors == manifest.factors and not naming.role(other):
            rows = [row for row in study_differences(other, manifest) if row.section == "settings"]
            classes = {row.key.removesuffix("._target_"): row for row in rows if row.key.endswith("._target_")}
            rows = [row for row in rows if row.key.partition(".")[0] not in classes]
            words = [f"{row.key} {_value_text(row.first)} → {_value_text(row.second)}" for row in rows]
            words += [f"{key} {class_name(row.first)} → {class_name(row.second)}" for key, row in classes.items()]
            but = f" but for {formatting.listed(words)}" if words else " in all settings"
            near.append((len(words), f"like {other.study}{but}"))
    least, text = min(near, default=(NEAR + 1, ""))
    return text if least <= NEAR else ""


def is_same_run(first: Side, second: Side) -> bool:
    """Whether both sides are the same run's folder."""
    return bool(first.run and second.run and first.run.folder.resolve() == second.run.folder.resolve())


def find(results: Path, text: str, study: str | None = None) -> Side:
    """The cell or run that a text names.  Raises Refused and Corrupt."""
    folder = Path(text)
    if (folder / "config.yaml").is_file():
        folder = folder.resolve()
        return _run_side(Run(folder.parents[2], f"{folder.parent.name}/{folder.name}"))
    manifest = manifest_of(results, choose_study(results, study)) if study or studies(results) else None
    named = [_cell_side(results, *one) for one in _cells(manifest, text)] if manifest else []
    paths = sorted(str(file.parent.relative_to(results / "runs")) for file in results.glob("runs/*/*/config.yaml"))
    begun = [path for path in paths if path.startswith(text)] if text and not named else []
    if len(named) + len(begun) == 1:
        return named[0] if named else _run_side(Run(results, begun[0]))
    if several := [side.name for side in named] or begun:
        raise Refused(f"{text} can be {', '.join(several[:6])}{', …' * (len(several) > 6)}; write which")
    labels = [cell.label for cell in manifest.cells] if manifest else []
    where = f"no cell of {manifest.study} and " if manifest else ""
    others = [name for name in studies(results) if (other := readable(results, name)) and any(_cells(other, text))]
    having = f"it is a study; write ablate studies compare {text} OTHER" * (text in studies(results))
    having = f"it is a cell of {formatting.first_of(others, 4)}; write --study {others[0]}" if others else having
    choices = paths if "/" in text else labels or paths
    raise Refused(f"{text} is {where}no run in {results}: {having or instead(text, choices)}")


def show(first: Side, second: Side, rows: list[Row]) -> str:
    """The differences as text."""
    head = [f"A  {first.name}", f"B  {second.name}"]
    if is_same_run(first, second):
        return "\n".join([*head, "A and B are the same run"])
    sections = {row.section for row in rows}
    if not sections:
        head.append("A and B are the same" + ", metrics and all" * bool(first.result and second.result))
    elif "configuration" not in sections:
        head.append("the same configuration")
    lacking = [who for who, side in zip("AB", (first, second), strict=True) if side.run and not side.provenance]
    notes = [f"code of {who}: unknown, there is no provenance.json" for who in lacking if first.run and second.run]
    return "\n".join([*head, *describe(rows), *notes])


def describe(rows: list[Row]) -> list[str]:
    """Differences as aligned lines, below the names of their sections."""
    texts = [(row.key, _value_text(row.first), _value_text(row.second), row.change) for row in rows]
    lines, section = [], ""
    for row, line in zip(rows, columns(texts), strict=True):
        lines += [row.section] * (row.section != section) + [f"  {line}"]
        section = row.section
    return lines


def _cells(manifest: Manifest, text: str) -> Iterator[tuple[Cell, PlannedRun | None]]:
    """The cells of a study that a text names by label, id or folder, with the run if it names a seed."""
    for wanted, seed in ((text, None), *((m[1], int(m[2])) for m in [re.fullmatch(r"(.+?)[ /,]+s(\d+)", text)] if m)):
        for cell in manifest.cells:
            if wanted.replace(" ", "") in (cell.label.replace(" ", ""), cell.id, cell.name):
                planned = [run for run in manifest.runs if (run.cell, run.seed) == (cell.id, seed)]
                if planned:
                    yield cell, planned[0]
                elif seed is None:
                    yield cell, None


def _cell_side(results: Path, cell: Cell, planned: PlannedRun | None) -> Side:
    sizes = {name: getattr(cell, name) for name in SIZES}
    if planned is None:
        return Side(cell.label, _settings(cell.config.as_json()), sizes)
    run = Run(results, planned.path)
    config = _settings(cell.config.with_value("seeds", [planned.seed]).as_json())
    return Side(f"{cell.label} s{planned.seed}  {run.path}", config, sizes, run, run.result(), run.provenance())


def _run_side(run: Run) -> Side:
    config = read_plain(run.config_file)
    if not isinstance(config, dict):
        raise Refused(f"{run.config_file} is no configuration")
    result = run.result()
    sizes = {name: size for name in SIZES if (size := getattr(result, name, None)) is not None}
    return Side(run.path, _settings(config), sizes, run, result, run.provenance())


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in flat(config).items() if key != "seeds"}
    seeds = config.get("seeds")
    return found | ({"seed": seeds[0]} if isinstance(seeds, list) and len(seeds) == 1 else {})


def _unequal(section: str, first: dict[str, Any], second: dict[str, Any], lacking: str = ABSENT) -> Iterator[Row]:
    for key in dict.fromkeys([*first, *second]):
        one, other = first.get(key, lacking), second.get(key, lacking)
        if one != other:
            yield Row(section, key, one, other)


def _origin(side: Side) -> dict[str, str]:
    """Versions, data, commit and machine of a run, as far as known."""
    found, result = side.provenance, side.result or Result(status="failed", final={})
    git, versions = result.git, (found and found.versions) or result.versions or {}
    commit = f"{git.commit[:SHOWN]}{' with changes' * bool(git.dirty)}" if git and git.commit else None
    known: dict[str, str | int | None] = {f"version of {name}": value for name, value in versions.items()}
    known |= {"data": (found and found.data) or result.data_fingerprint, "commit": commit}
    known |= {"device": result.device, "host": result.host}
    return {key: str(value) for key, value in known.items() if value}


def _status(side: Side) -> str:
    if side.result:
        return side.result.status
    assert side.run
    if side.run.holder():
        return "running"
    return "interrupted" if side.run.checkpoint_file.exists() else "not ended"


def _value_text(value: Any) -> str:
    whole = formatting.is_number(value) and abs(value) >= 1000 and float(value).is_integer()
    return f"{int(value):,}" if whole else formatting.show(value)
