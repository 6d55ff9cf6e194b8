"""`data=dates`: dates translated from one locale to another, by Babel's locale data."""

import datetime
import functools
import hashlib
import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ablate.config.extra import extra
from ablate.data.sequence import FIRST, PAD, blank, encode
from ablate.data.task import Batch, HeldOut, Task, generator

FORMATS = ("full", "long", "medium", "short")


class Dates(Task):
    """Translates a date from one locale to another, in the same format, character by character.  Each day belongs to
    one split by its hash (90/5/5), in all formats.  Both locales share one alphabet."""

    kinds = ("seq2seq", "lm")
    metrics = {"exact": "max", "accuracy": "max", "loss": "min"}  # noqa: RUF012 (never written to)
    token = "char"

    def __init__(self, kind: str, context: int, source: str, target: str, formats: list[str], years: list[int]):
        if not formats or not set(formats) <= set(FORMATS):
            raise ValueError(f"data.formats={formats} is no choice; write some of [{', '.join(FORMATS)}]")
        self.kind = kind
        self.formats = len(formats)
        self.days = days_of(years)
        self.name = f"dates-{source}-{target}"
        self.title = f"dates from {source} to {target}"
        sources = write_dates("source", source, tuple(years), tuple(formats))
        targets = write_dates("target", target, tuple(years), tuple(formats))
        if len({*zip(sources, targets, strict=True)}) > len({*sources}):
            raise ValueError(f"data.formats={formats}: a date of {source} has two answers; leave a format out")
        alphabet = sorted(set("".join([*sources, *targets])))
        self.vocab = FIRST + len(alphabet)
        self.outputs = self.vocab
        self.yardsticks = {"chance": math.log(len(set("".join(targets))) + 1)}  # a character of the targets, or EOS
        self.sources = encode_texts(sources, alphabet)  # (days · formats, S)
        self.targets = encode_texts(targets, alphabet)  # (days · formats, T)
        S = self.sources.shape[1]
        T = self.targets.shape[1]
        self.length = T
        self.context = max(S, T + 1)
        self.positions = S + T + 1
        if kind == "lm":
            self.context = 2 + int(((self.sources != PAD).sum(1) + (self.targets != PAD).sum(1)).max())
            self.positions = self.context
        else:
            self.title += ", sequence to sequence"
        if self.context > context:
            needs = f"data.context of at least {self.context}, not {context}"
            raise ValueError(f"data.source={source} to data.target={target} needs {needs}")
        content = "\n".join([f"dates 1 {kind}", *sources, *targets])
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:32]
        self.split_days = split_by_hash(self.days)
        self.train_tokens = len(self.split_days["train"]) * self.formats * self.positions

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """Random days and formats, drawn from (seed, step)."""
        draw = generator("batch", seed, step)
        train = self.split_days["train"]
        days = train[draw.integers(0, len(train), size)]
        inputs, targets = self.examples(days * self.formats + draw.integers(0, self.formats, size))
        return Batch(inputs, targets)

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """Evenly spaced days and formats of the split, each at most once; the years are the documents."""
        if length is not None:
            raise ValueError(f"dates are as long as they are; there are none of length {length}")
        rows = (self.split_days[split][:, None] * self.formats + np.arange(self.formats)).ravel()
        count = min(max(1, tokens // self.positions), len(rows))
        rows = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
        inputs, targets = self.examples(rows)
        names, years = np.unique([self.days[row // self.formats].year for row in rows], return_inverse=True)
        documents = np.broadcast_to(years[:, None], targets.shape).copy()
        return HeldOut(inputs, targets, documents, names.astype(str).tolist())

    def examples(self, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs and targets of rows of the (day, format) table."""
        return encode(self.kind, self.sources[rows], self.targets[rows], self.context)

    def blank(self) -> dict[str, Tensor]:
        """Zero inputs of one example, without masking."""
        return blank(self.batch(0, 0, 1))


def split_by_hash(days: Sequence[datetime.date]) -> dict[str, np.ndarray]:
    """The indices of the days of each split."""
    share = np.array([hashlib.sha256(day.isoformat().encode()).digest()[0] / 256 for day in days])
    split = np.select([share < 0.9, share < 0.95], ["train", "val"], "test")
    return {name: np.flatnonzero(split == name) for name in ("train", "val", "test")}


def days_of(years: list[int]) -> list[datetime.date]:
    """All days from the first year to the last.  Raises ValueError for an invalid range."""
    if len(years) != 2 or not 1 <= years[0] <= years[1] <= 9998:
        raise ValueError(f"data.years={years} is no range; write [first,last] with 1 <= first <= last <= 9998")
    days: list[datetime.date] = np.arange(f"{years[0]:04}", f"{years[1] + 1:04}", dtype="datetime64[D]").tolist()
    return days


@functools.lru_cache(2)
def write_dates(key: str, name: str, years: tuple[int, ...], formats: tuple[str, ...]) -> tuple[str, ...]:
    """All days in all formats, by day and then format.  Cached: it takes a second, and a plan builds a task
    repeatedly.  Raises ValueError for a locale unknown to Babel."""
    dates = extra("babel.dates", "data=dates")
    core = extra("babel.core", "data=dates")
    try:
        locale = core.Locale.parse(name)
    except (ValueError, TypeError, core.UnknownLocaleError):
        raise ValueError(f"data.{key}={name} is no locale that Babel has; write one such as en_GB") from None
    return tuple(dates.format_date(day, format=form, locale=locale) for day in days_of([*years]) for form in formats)


def encode_texts(texts: Sequence[str], alphabet: list[str]) -> np.ndarray:
    """Character ids, padded: (N, width of the longest)."""
    points = np.array(texts).view(np.uint32).reshape(len(texts), -1)  # NumPy pads texts by zeros
    return np.where(points == 0, PAD, FIRST + np.searchsorted(np.array(alphabet).view(np.uint32), points))
