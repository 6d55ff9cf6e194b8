"""A study file for imported runs: their question, design and claims, in the grammar of ablate's study files.

The results exist when it is written, so claims and margin are post hoc.  Values are read as text and compared with the
levels of the runs, so that YAML does not convert `1e-3` or `no`.
"""

import math
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ablate import evidence
from ablate.config.claims import Claim
from ablate.config.errors import Corrupt, Problem, Refused
from ablate.config.files import read_plain
from ablate.formatting import ACTING, instead, is_number, show, visible
from ablate.runs.records import ClaimEntry, Manifest, MarginEntry
from analysis.sources import StudyDescription
from analysis.sources.columns import level

FORMS = {  # the keys, and what is written: factors are columns, the margin is in the metric's unit
    "study": "a name for its folder, of up to 100 letters, digits, '.', '_', '-'",
    **{"question": "a text", "factors": "{ffn: [mlp, swiglu]}", "reference": "{norm: rms}", "design": "grid"},
    **{"margin": "0.01", "claims": "{NAME: {less: [SIDE, SIDE]}}", "at": "last, best, or {norm: ln} for claims"},
    **{"seed": "the column of the seed", "metric": "test/loss", "better": "lower or higher", "ends": "common or own"},
}

POINTS = ("last", "best")  # of a curve


class Texts(yaml.BaseLoader):  # type: ignore[misc, unused-ignore]
    """A YAML loader that reads every value as text, and refuses invisible characters."""

    def construct_scalar(self, node: Any) -> str:
        """The text of a node."""
        if found := ACTING.search(text := str(super().construct_scalar(node))):
            problem = f"holds {visible(found[0])}, an invisible character"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return text


def read_study_file(file: Path) -> StudyDescription:
    """Read a study file.  Raises `Refused`, which names the file and the key."""
    try:
        content = read_plain(file, Texts)
    except Corrupt as error:
        raise Refused(str(error)) from None
    if not isinstance(content, dict):
        raise Refused(f"{file} must be a mapping; write keys and values, of {', '.join(FORMS)}")
    if unknown := [key for key in content if key not in FORMS]:
        raise Refused(f"{file}: {unknown[0]}: no such key for runs of other programs; the keys are {', '.join(FORMS)}")
    try:
        found = msgspec.convert(content | {"file": str(file)}, StudyDescription)
        designs = [design for design in evidence.ESTIMABLE if design != "ladder"]  # whose rungs only plans know
        if found.design and found.design not in designs:
            raise ValueError(f"design: no such design: {found.design}: {instead(found.design, designs)}")
        for name, known in found.factors.items():
            if len(set(known)) < len(known):
                raise ValueError(f"factors.{name}: has a level twice; write each once")
        if isinstance(found.at, str) and found.at not in POINTS:
            raise ValueError(f"at: {instead(found.at, POINTS)}")
        if found.margin is None:
            return found
        if evidence.fraction_of(found.margin) is not None:
            raise ValueError(f"margin: {_share(found.margin)}")
        size = level(found.margin)
        if not is_number(size) or not 0 < size < math.inf:
            raise ValueError(f"margin: must be > 0, a number in the metric's unit as in 0.01; not {found.margin}")
        return msgspec.structs.replace(found, margin=size)
    except msgspec.ValidationError as error:
        key = str(error).partition("$.")[2].split("[")[0].strip("`")
        raise Refused(f"{file}: {key}: cannot be read; write {FORMS[key]}") from None
    except ValueError as error:
        raise Refused(f"{file}: {error}") from None


def _share(text: Any) -> str:
    what = f"{text} is a share of the training steps, which only a study of ablate with step_equivalents=true can use"
    return f"{what}; write a number in the metric's unit: 0.01"


def level_of(text: Any, known: list[Any]) -> Any:
    """The one level in `known` that a text matches, as 1e-3 matches 0.001; the text itself if none or several match."""
    if not isinstance(text, str):
        return text
    value = level(text)
    by_text = [each for each in known if show(each) == text]
    equal = [each for each in known if is_number(each) and is_number(value) and each == value]
    unlike = [each for each in known if show(each).lower() == text.lower()]
    return next((found[0] for found in (by_text, equal, unlike) if len(found) == 1), text)


def claim_fields(
    described: StudyDescription, plan: Manifest, merged: bool, metrics: dict[str, bool | None]
) -> dict[str, Any]:
    """The fields `question`, `claims` and `margin` of a manifest with the cells of `plan`; `merged`: they are levels of
    one factor, `variant`.  `metrics` tells for each whether lower is better.  Raises `Refused` at the first claim that
    is not about these cells."""
    given = {} if described.claims is None else _typed(described.claims, plan.factors)
    fixed = None if isinstance(described.at, str) else _typed(described.at, plan.factors)
    claims, problems = evidence.read_claims(given, plan.factors, fixed)
    measured = {f"claims.{name}": _unmeasured(claim, metrics) for name, claim in claims.items()}
    problems = problems or [Problem(key, why) for key, why in measured.items() if why]
    if not problems:
        claims, problems = evidence.applicable(claims, plan.cells, tasks=[cell.task for cell in plan.cells])
    if problems:
        (key, message), more = problems[0], len(problems) - 1
        loose = "; these configurations form no design, so they are levels of a single factor, variant: use its levels"
        raise Refused(f"{described.file}: {key}: {message}" + loose * merged + f" (and {more} more)" * bool(more))
    entries = {name: ClaimEntry(claim=claim, registered=False) for name, claim in claims.items()}
    margin = None if described.margin is None else MarginEntry(value=described.margin)
    return {"claims": entries, "margin": margin, "question": described.question or None}


def _unmeasured(claim: Claim, metrics: dict[str, bool | None]) -> str:
    """The problem with the metric or the margin of a claim about imported runs; "" if there is none."""
    for metric in claim.metrics:
        if metric not in metrics:
            return f"metric: no column {metric}: {instead(metric, list(metrics))}"
        if metrics[metric] is None:
            open_ = f"metric: the name of {metric} does not say whether less of it is better"
            return f"{open_}; compare by it, with --metric {metric} and --lower or --higher"
    if len({metrics[metric] for metric in claim.metrics}) > 1:
        return f"metric: of {' and '.join(claim.metrics)} less is better of one, and more of the other"
    return f"margin: {_share(claim.margin)}" if evidence.fraction_of(claim.margin) is not None else ""


def _typed(content: Any, factors: dict[str, list[Any]], key: str = "") -> Any:
    """The claims of a study file with texts converted to the levels of the runs, or to numbers."""
    if isinstance(content, dict):
        return {name: _typed(part, factors, name) for name, part in content.items()}
    if isinstance(content, list):
        return [_typed(part, factors, key) for part in content]
    return level_of(content, factors[key]) if key in factors else level(content)
