"""What training programs print, as values by step: `read_log(text_of(data))`.

Read are the lines of nanoGPT, nanochat, modded-nanogpt and autoresearch, `name: value` and `name=value`, dictionaries
and JSON.  Time stamps, colours and ranks may stand in front of a line.
"""

import re
from typing import NamedTuple

LOWER = {"loss", "bpb", "bpc", "perplexity", "ppl", "error", "err", "nll", "mse", "rmse", "mae", "wer", "cer", "fid"}
HIGHER = {"accuracy", "acc", "exact", "em", "f1", "bleu", "rouge", "auc", "auroc", "reward", "success", "mcc"}

LINE_END = re.compile(r"\r\n|\n|\r")
IGNORED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|['\"]")  # colours, and the quotes of dictionaries
RANK = re.compile(r"\[?(?:rank|default) ?(\d+)\]?:|^\s*(\d+): ", re.IGNORECASE)  # of torchrun, of srun --label
SETTING = re.compile(r"Overriding: (\S+) = (.*)")  # of nanoGPT and nanochat
STEP = re.compile(r"\b(?:step|iter|iteration)\b[ :=#]*(\d+)(?: ?/ ?\d+)?(?![\w.])", re.IGNORECASE)
EPOCH = re.compile(r"\bepoch\b[ :=#]*(\d+(?:\.\d+)?)(?: ?/ ?\d+)?(?![\w.])", re.IGNORECASE)
NAME = r"([a-z][\w/.]*(?: [a-z][\w/.]*)*)"
VALUE = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:inf|nan))(?:ms|s|m|%)?(?![\w.]|,\d)"
PAIR = re.compile(rf"{NAME}\s*[:=]?\s*{VALUE}", re.IGNORECASE)  # train loss 4.2
ASSIGNED = re.compile(rf"{NAME}\s*[:=]\s*{VALUE}", re.IGNORECASE)  # val_bpb: 0.9979
BESTS = ("min", "minimum", "max", "maximum", "best", "lowest")  # first words of names of what was logged before
LONGEST = 2000  # characters of a line that is read; longer ones hold data
CRASH = "Traceback (most recent call last)"


class Log(NamedTuple):
    """What one run logged: a row per step with `step` (or `epoch`) and values by name, as numbers or texts; a program
    that prints its results alone, at its end, has one row without a step.

    settings     what the program printed of its configuration
    crashed      it ended by an exception
    unfinished   its last line has no end, and was not read
    """

    settings: dict[str, str]
    rows: list[dict[str, float | str]]
    crashed: bool = False
    unfinished: bool = False


def text_of(data: bytes, errors: str = "strict") -> str:
    """The text of a file in UTF-8 or UTF-16.  Raises UnicodeDecodeError if `errors` is strict."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors)
    if data[1:2] == b"\0" and data[3:4] == b"\0":
        return data.decode("utf-16-le", errors)
    return data.decode("utf-8-sig", errors)


def read_log(text: str) -> Log:
    """The log of a run in what its program printed; of several ranks the first counts."""
    *lines, last = LINE_END.split(text)
    settings: dict[str, str] = {}
    rows: list[dict[str, float | str]] = []
    results: dict[str, float | str] = {}
    crashed = False
    for line in lines:
        if len(line) > LONGEST:
            continue
        line = IGNORED.sub("", line).strip()
        rank = RANK.search(line)
        if rank and int(rank[1] or rank[2]) > 0:
            continue
        setting = SETTING.search(line)
        if setting:
            settings[setting[1]] = setting[2]
            continue
        if CRASH in line:
            crashed = True
        step = STEP.search(line)
        place = step or EPOCH.search(line)
        if place is None:
            last_row = rows[-1] if rows else results
            last_row.update(metrics_of(line))
            continue
        values = metrics_of(line[: place.start()]) | values_of(line[place.end() :], PAIR)
        if values:
            rows.append({"step" if step else "epoch": float(place[1]), **values})
            crashed = False
    if results and not rows:
        rows = [results]
    return Log(settings, rows, crashed, unfinished=bool(last.strip()))


def values_of(text: str, pattern: re.Pattern[str]) -> dict[str, float]:
    """The values in a text by name: `train/loss` for "train loss 4.2", as nanoGPT calls it on W&B."""
    values = {}
    for words, value in pattern.findall(text):
        name = words.lower().replace(" ", "/")
        if words_of(name)[0] not in BESTS:
            values[name] = float(value)
    return values


def metrics_of(text: str) -> dict[str, float]:
    """The values in a line without a step whose names end as those of metrics: val_bpb, and not val_loss_every."""
    metrics = {}
    for name, value in values_of(text, ASSIGNED).items():
        if words_of(name)[-1] in LOWER | HIGHER:
            metrics[name] = value
    return metrics


def words_of(name: str) -> list[str]:
    """The words in a metric's name, without an evaluation length such as @128."""
    return re.split(r"[^a-z0-9]+", name.split("@")[0].lower())


def lower_is_better(metric: str) -> bool | None:
    """Whether lower values of a metric are better, by the words in its name; None if these do not say."""
    words = set(words_of(metric))
    is_lower = bool(words & LOWER)
    is_higher = bool(words & HIGHER)
    return None if is_lower == is_higher else is_lower
