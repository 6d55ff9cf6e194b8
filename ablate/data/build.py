"""Builds the task of a resolved configuration."""

from typing import Any

from ablate.config.components import bind, resolve
from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.formatting import is_number

KINDS = {"lm": "for a causal model", "mlm": "of masked tokens", "classification": "of classification"}
KINDS |= {"seq2seq": "from sequence to sequence"}


def build_task(config: Config) -> Any:
    """The task of a resolved configuration, in the kind that its model supports; reads or makes its cache.  Raises
    BadComponent for a task that the model does not support, ValueError for problems of the data."""
    form = resolve("model", config.model._target_, config.user)
    task = resolve("data", config.data.get("_target_", ""), config.user)
    kind = next((kind for kind in form.kinds if kind in task.kinds), None)  # type: ignore[attr-defined]
    if kind is None:
        kinds = [" or ".join(KINDS[kind] for kind in one.kinds) for one in (task, form)]  # type: ignore[attr-defined]
        raise BadComponent("data", f"{task.__name__} is a task {kinds[0]}, and {form.__name__} does tasks {kinds[1]}")
    made = bind("data", config.data, {"kind": kind}, config.user)()
    made.measured()  # raises ValueError for an unknown metric
    at, first = config.data.get("solved_at"), next(iter(made.metrics))  # a run has solved a task from this value on
    if at is not None and first not in made.metric_facts()["shares"]:
        raise BadComponent("data.solved_at", f"is for shares, which {first}, its first metric, is not")
    if at is not None and not (is_number(at) and 0 < at <= 1):
        raise BadComponent("data.solved_at", f"must be above 0 and at most 1, not {at!r}")
    return made
