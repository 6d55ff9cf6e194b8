"""What a user specifies about runs of other programs: on the command line, and in a study file."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Described(NamedTuple):
    """What a study file says, as texts but for the margin; `factors` holds levels in their order."""

    file: str = ""
    study: str = ""
    question: str = ""
    factors: Mapping[str, list[str]] = MappingProxyType({})
    reference: Mapping[str, str] = MappingProxyType({})
    design: str = ""
    margin: float | None = None
    claims: Any = None
    at: Any = None

    @property
    def metrics(self) -> list[str]:
        """The metrics that claims name, whatever else they say."""
        claims = self.claims.values() if isinstance(self.claims, dict) else ()
        given = [claim.get("metric") for claim in claims if isinstance(claim, dict)]
        named = [metric for each in given for metric in (each if isinstance(each, list) else [each])]
        return [metric for metric in named if isinstance(metric, str)]


class Request(NamedTuple):
    """What the command line says about foreign runs; what it leaves open is inferred.

    `reference` maps factors to levels as texts; the factors in `within` are not compared: effects are given at each of
    their levels.
    """

    factors: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    lower: bool | None = None
    reference: tuple[tuple[str, str], ...] = ()
    within: tuple[str, ...] = ()
    unpaired: bool = False
    group: str = ""
    described: Described = Described()  # by a study file; where both say something, the command line counts
