"""The rungs of design=ladder: one model at several sizes, each with a quarter of the training compute of the next.

The composed model is the top rung.  One rung down, N = layers · dim² and the tokens of training are halved: layers ∝
N^(1/3), the width takes the rest in multiples of twice the number of heads, batch and steps are divided by √2 each (the
batch rounded, the steps making up for it), and the warm-up stays the same share of the steps.  Heads, context and
learning rate stay: parametrization=mup carries the rate over widths.  The rung below the top is also trained at half
and at twice the rate, to see whether it was carried to the best one.
"""

from typing import Any

from ablate.config.claims import Level, Levels
from ablate.config.designs import RUNG
from ablate.config.schema import Config

RATES = {"half the rate": 0.5, "twice the rate": 2.0}
KEYS = ("model.layers", "model.dim", "train.batch_size", "train.steps", "optim.warmup", "optim.lr")


def levels_of_rungs(count: int) -> list[Level]:
    """The levels of the factor, for a ladder of so many rungs: 1, 2, 3, 4, "3 at half the rate", …"""
    return [*range(1, count + 1), *(f"{count - 1} at {rate}" for rate in RATES)]


def number_of(level: Level) -> int | None:
    """The rung of a level, unless it is one with another learning rate."""
    return level if isinstance(level, int) else None


def at_other_rate(level: Level) -> bool:
    """Whether a level, or the text of a stratum, is a rung at another learning rate than the ladder's."""
    return str(level).endswith(tuple(RATES))


def has_more_seeds(levels: Levels, factors: dict[str, list[Level]]) -> bool:
    """Whether a cell has twice as many seeds as the top rung, since it costs a sixteenth of it or less."""
    rung = number_of(levels.get(RUNG))
    return rung is not None and rung < len(factors[RUNG]) - len(RATES) - 1


def rungs(config: Config, count: int) -> dict[Level, list[Any]]:
    """The values of `KEYS` at each level, for the model of the top rung."""
    lr = config.optim.lr
    values: dict[Level, list[Any]] = {}
    for rung in range(1, count + 1):
        values[rung] = [*sizes(config, 0.5 ** (count - rung)), lr]
    below_top = values[count - 1][:-1]
    for rate, factor in RATES.items():
        values[f"{count - 1} at {rate}"] = [*below_top, lr * factor]
    return values


def sizes(config: Config, share: float) -> list[int]:
    """Layers, width, batch, steps and warm-up of a rung with this share of the top rung's N and tokens."""
    model = config.model
    train = config.train
    unit = 2 * model.heads
    layers = max(1, round(model.layers * share ** (1 / 3)))
    width = model.dim
    if share < 1:
        width = max(1, round(model.dim * (share * model.layers / layers) ** 0.5 / unit)) * unit
    batch = max(1, round(train.batch_size * share**0.5))
    steps = round(train.steps * train.batch_size * share / batch)
    return [layers, width, batch, steps, round(config.optim.warmup * steps / train.steps)]
