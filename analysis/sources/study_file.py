"""A study file for imported runs: their question, design and claims, in the grammar of ablate's study files.

The results exist when it is written, so claims and margin are post hoc.  Values are read as text and compared with the
levels of the runs, so that YAML does not convert `1e-3` or `no`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from ablate import evidence
from ablate.config.claims import Claim
from ablate.config.errors import Corrupt, Problem, Refused
from ablate.config.files import read_plain
from ablate.formatting import instead, is_number, visible
from ablate.runs.records import ClaimEntry, Manifest
from analysis.sources import Request
from analysis.sources.design import level_of, number_of


class StudyFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a study file, as texts."""

    study: Annotated[str, msgspec.Meta(pattern=r"^((?!-)(?=.*\w)[\w.-]{1,100})?$")] = ""
    question: str = ""
    factors: dict[str, list[str]] = {}
    reference: dict[str, str] = {}
    design: Literal["", "grid", "one_at_a_time", "leave_one_out", "cumulative"] = ""
    margin: str | None = None
    claims: Any = {}


def with_study_file(request: Request, file: Path) -> Request:
    """The request, with what a study file names and the command line does not.  Raises `Refused`, which names the file
    and the key."""
    try:
        written = msgspec.convert(read_plain(file, yaml.BaseLoader), StudyFile)
    except Corrupt as error:
        raise Refused(str(error)) from None
    except msgspec.ValidationError as error:
        keys = ", ".join(StudyFile.__struct_fields__)
        raise Refused(f"{file}: {error}; the keys for runs of other programs are {keys}") from None
    margin = number_of(written.margin)
    if margin is not None and not (is_number(margin) and 0 < margin < math.inf):
        raise Refused(f"{file}: margin: {margin} is not a number above 0 in the metric's unit, such as 0.01")
    reference = written.reference | dict(request.reference)
    return request._replace(
        study_yaml=str(file),
        name=written.study,
        question=visible(written.question),
        factors=request.factors or tuple(written.factors),
        levels=written.factors,
        reference=tuple(reference.items()),
        design=written.design,
        margin=margin,
        claims=written.claims,
    )


def claims_of(request: Request, plan: Manifest, lower: Mapping[str, bool | None]) -> dict[str, ClaimEntry]:
    """The claims of a study file about the configurations of `plan`; `lower`: whether less of a metric is better.
    Raises `Refused` at the first claim that cannot be tested."""
    content = with_levels(request.claims or {}, plan.factors)
    claims, problems = evidence.read_claims(content, plan.factors)
    problems += [Problem(f"claims.{name}", why) for name, claim in claims.items() for why in untestable(claim, lower)]
    if not problems:
        claims, problems = evidence.applicable(claims, plan.cells, tasks=[cell.task for cell in plan.cells])
    if problems:
        raise Refused(f"{request.study_yaml}: {problems[0]}; the factors are {', '.join(plan.factors)}")
    return {name: ClaimEntry(claim=claim, registered=False) for name, claim in claims.items()}


def untestable(claim: Claim, lower: Mapping[str, bool | None]) -> list[str]:
    """What is wrong with the metrics and the margin of a claim about imported runs."""
    problems = []
    for metric in claim.metrics:
        if metric not in lower:
            problems.append(f"metric: there is no {metric}, or its name is none of a metric: {instead(metric, lower)}")
        elif lower[metric] is None:
            how = f"compare by it, with --metric {metric} and --lower or --higher"
            problems.append(f"metric: the name of {metric} does not say whether less of it is better; {how}")
    if len({lower.get(metric) for metric in claim.metrics}) > 1:
        problems.append("metric: of one less is better, and of the other more")
    if evidence.fraction_of(claim.margin) is not None:
        problems.append(f"margin: {claim.margin} is a share of training steps; write a number in the metric's unit")
    return problems


def with_levels(content: Any, factors: dict[str, list[Any]], key: str = "") -> Any:
    """The content of a study file with texts as levels of the runs, or as numbers."""
    if isinstance(content, dict):
        return {name: with_levels(value, factors, name) for name, value in content.items()}
    if isinstance(content, list):
        return [with_levels(value, factors, key) for value in content]
    return level_of(content, factors[key]) if key in factors else number_of(content)
