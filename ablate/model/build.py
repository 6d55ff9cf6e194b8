"""Builds the model of a resolved configuration and initialises its parameters from a seed."""

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import nn

from ablate.config.components import NESTED, NUMBERS, PLACE, RESERVED, WIRING, bind, own_of, parameters_of, resolve
from ablate.config.depth import layer_of, mapped, variants_of
from ablate.config.errors import BadComponent
from ablate.config.ranges import at_least
from ablate.config.schema import Config
from ablate.model.embedding import Embedding, check_tied
from ablate.model.init import initialise
from ablate.model.objective import OFFERED, Objective, requested
from ablate.model.parametrization import Parametrization
from ablate.model.position import OverLayers
from ablate.model.residual import Sublayers, mixes_values
from ablate.model.shape import ModelShape, Shape
from ablate.model.transformer import Parts


def initialised_model(config: Config, task: Any, seed: int) -> nn.Module:
    """The model of a resolved configuration on the CPU, with its parameters initialised from a seed."""
    model = build_model(config, task)
    initialise(model, build_init(base_of(config) or config, task), seed)
    return model


def build_model(config: Config, task: Any) -> nn.Module:
    """The model of a resolved configuration for a task, on the current default device, not yet initialised.  Raises
    BadComponent or ValueError if components do not fit together."""
    model, base = bare_model(config, task), base_of(config)
    if base is not None:
        with torch.device("meta"):  # only shapes are read
            try:
                other = bare_model(base, task)
            except ValueError as error:  # about sizes that the user did not write
                raise BadComponent("parametrization.base_dim", f"{base.model.dim} makes no model ({error})") from None
            parametrization_of(config).follow(model, other)
    return model


def base_of(config: Config) -> Config | None:
    """The configuration at the base width of the parametrization, also of its FFN; None without a base width.  Raises
    BadComponent."""
    rule = parametrization_of(config)
    if rule.base_dim is None:
        return None
    if config.model.scale_embeddings:
        raise BadComponent("model.scale_embeddings", "grows with the width, for which parametrization=mup has no rule")
    if any(node.get("scale") is not None for node in variants_of(config.attention)):
        raise BadComponent("attention.scale", "is set by parametrization=mup; leave it null")
    if config.model.head_dim and rule.base_head_dim is None and config.model.dim != rule.base_dim:
        problem = f"is null, and model.head_dim={config.model.head_dim} gives the width of heads at this model.dim only"
        raise BadComponent("parametrization.base_head_dim", f"{problem}; write how wide they are at the base width")
    share = rule.base_dim / config.model.dim
    head_dim = config.model.head_dim
    inner = (head_dim * config.model.heads if head_dim else config.model.dim) * share  # features of all heads
    heads = inner / rule.base_head_dim if rule.base_head_dim else config.model.heads
    if heads != round(heads) or inner / heads != round(inner / heads):
        problem = f"{rule.base_dim} makes {heads:.3g} heads of {inner / heads:.3g} features; write one that both divide"
        raise BadComponent("parametrization.base_dim", problem)

    def narrowed(ffn: dict[str, Any]) -> dict[str, Any]:
        return ffn | {"hidden": max(1, round(ffn["hidden"] * share))} if ffn.get("hidden") else ffn

    for key, value in (("dim", rule.base_dim), ("heads", round(heads)), ("head_dim", round(inner / heads))):
        config = config.with_value(f"model.{key}", value)
    return config.with_value("ffn", mapped(config.ffn, narrowed))


def parametrization_of(config: Config) -> Parametrization:
    """The parametrization of a resolved configuration."""
    return bind("parametrization", config.parametrization, {}, config.user)()


def bare_model(config: Config, task: Any) -> nn.Module:
    """See `build_model`; without the parametrization."""
    whole, user = shape(config, task), config.user
    given = offered(whole)
    placed = given | dict.fromkeys(PLACE)
    make = {name: each_layer(config, name, placed) for name in ("norm", "ffn", "attention")}
    make["residual"] = each_layer(config, "residual", placed | dict.fromkeys(WIRING))
    table = offered(dataclasses.replace(whole, dim=whole.table_dim))  # position and embed_norm have this width
    make["embed_norm"] = each_layer(config, "norm", table | dict.fromkeys(PLACE))
    make["cross_attention"] = each_layer(config, "cross_attention", placed | dict.fromkeys(NESTED))
    norms, crossing, tables = list[nn.Module](), list[nn.Module](), list[nn.Module]()

    def norm(layer: int | None = None, of: str = "norm") -> nn.Module:
        norms.append(at(layer, make[of])())
        return norms[-1]

    def embedding() -> nn.Module:
        tables.append(make_table())
        if whole.tie_embeddings:
            check_tied(tables[-1], whole.vocab, whole.table_dim)
        return tables[-1]

    def across(layer: int) -> nn.Module:
        found = at(layer, make["cross_attention"])
        crossing.append(found(attention=at(layer, make["attention"])) if follows(found) else found())
        if not follows(found) and mixes_values(crossing[-1]):
            raise BadComponent("cross_attention.value_residual", "is for self-attention; leave it out")
        return crossing[-1]

    def block(layer: int, cross: bool = False) -> nn.Module:
        attention, ffn = at(layer, make["attention"])(), at(layer, make["ffn"])()
        source = across(layer) if cross else None
        return at(layer, make["residual"])(sublayers=Sublayers(attention, source, ffn, partial(norm, layer)))

    positions = each_layer(config, "position", table)
    make_table = bind("embedding", config.embedding, given | {"vocab": whole.vocab}, user)
    beside = partial(norm, of="embed_norm")
    parts = Parts(block, partial(block, cross=True), norm, partial(encoding, positions), beside, embedding)
    form = resolve("model", config.model._target_, user)
    pieces = dataclasses.asdict(whole) | parts._asdict() | {"shape": whole, "parts": parts}
    wanted = {key: value for key, value in pieces.items() if key in parameters_of(form)}
    # Constructors use the global generator; restore it, since their draws are overwritten by `initialise`.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would seed the accelerators, too
        model = form(**wanted, **own_of(config, "model"))
    if whole.later_tokens and not getattr(model, "later", None):
        raise BadComponent("objective", f"{form.__name__} makes no blocks for later tokens; write model=decoder")
    keep_hidden(model, build_objective(config))
    target, table_of = resolve("embedding", config.embedding["_target_"], user), config.embedding
    plain = target is Embedding and not (table_of["width"] or table_of["frozen"])
    if not tables and not plain:
        problem = "has no effect: the inputs of this model are not ids, so it has no embedding table; leave it out"
        raise BadComponent("embedding", problem)
    idle = {"norm": not norms, "cross_attention": not (crossing or all(map(follows, make["cross_attention"])))}
    model.unused = tuple(group for group, without in idle.items() if without)  # groups that this model does not use
    return model


def keep_hidden(model: nn.Module, objective: Objective) -> None:
    """Make a model keep the hidden states that its objective requests.  Raises BadComponent if it cannot."""
    if unknown := [name for name in requested(objective) if name not in OFFERED]:
        problem = f"terms of {type(objective).__name__} ask for {unknown[0]}; there are {', '.join(OFFERED)}"
        raise BadComponent("objective", problem)
    stacks = [part for part in model.modules() if hasattr(part, "keeps_hidden")]
    if "hidden" in requested(objective) and not stacks:
        raise BadComponent("objective", f"asks for hidden states, and {type(model).__name__} keeps none")
    for stack in stacks:
        stack.keeps_hidden = "hidden" in requested(objective)


def build_objective(config: Config) -> Objective:
    """The training objective of a resolved configuration."""
    return bind("objective", config.objective, {}, config.user)()


def each_layer(config: Config, group: str, given: dict[str, Any]) -> list[partial[Any]]:
    """The constructors of a group's variant, one per layer."""
    return layer_of(getattr(config, group), lambda node: bind(group, node, given, config.user), config.model.layers)


def encoding(make: list[partial[Any]]) -> nn.Module:
    """The position encoding of a stack, from the constructors for each layer."""
    kinds = list(dict.fromkeys(make))  # layers of one variant have the same constructor
    return kinds[0]() if len(kinds) == 1 else OverLayers([kind() for kind in kinds], [kinds.index(own) for own in make])


def follows(cross: partial[Any]) -> bool:
    """Whether cross-attention is built from the layer's own attention."""
    return not cross.keywords.keys().isdisjoint(NESTED)


def at(layer: int | None, make: list[partial[Any]]) -> partial[Any]:
    """A layer's constructor, with its layer number if it takes one; without a layer, that of the last layer."""
    found = make[-1 if layer is None else layer]
    return partial(found, layer=layer) if "layer" in found.keywords else found


def build_init(config: Config, task: Any) -> Any:
    """The initialisation of a resolved configuration's model for a task."""
    return bind("init", config.init, offered(shape(config, task)), config.user)()


def shape(config: Config, task: Any) -> ModelShape:
    """The sizes of a model, from its configuration and task.  Raises ValueError if heads do not divide the width."""
    model, width = config.model, config.embedding.get("width")
    if model.head_dim is None and model.dim % model.heads:
        raise ValueError(f"model.dim={model.dim} must be divisible by model.heads={model.heads}")
    stacks = getattr(resolve("model", model._target_, config.user), "stacks", ("decoder",))
    return ModelShape(
        **{key: value for key, value in vars(model).items() if key not in RESERVED}
        | {"tie_embeddings": ties(config, task), "head_dim": model.head_dim or model.dim // model.heads},
        embedding_dim=None if width is None else at_least("embedding.width", width, 1),
        context=task.context,
        encoder_layers=model.layers * ("encoder" in stacks),
        decoder_layers=model.layers * ("decoder" in stacks),
        vocab=task.vocab,
        outputs=task.outputs,
        features=task.features,
        pool=task.kind == "classification",
        later_tokens=later_tokens(config, task),
    )


def later_tokens(config: Config, task: Any) -> int:
    """How many tokens after the next one training predicts.  Raises BadComponent if the task does not support it."""
    objective = build_objective(config)
    name = type(objective).__name__
    if task.kind not in objective.kinds:
        kinds = " or ".join(objective.kinds)
        raise BadComponent("objective", f"{name} is for {kinds} tasks, and data is {task.kind}")
    if objective.later >= task.context:
        most = f"after the next one there are at most {task.context - 1} in a context of {task.context}"
        raise BadComponent("objective", f"{name} predicts {objective.later} later tokens, and {most}")
    return objective.later


def ties(config: Config, task: Any) -> bool:
    """Whether embedding and head share a matrix; by default they do if targets are input tokens."""
    if config.model.tie_embeddings is not None:
        return config.model.tie_embeddings
    return task.kind != "classification" and task.features is None and task.outputs == task.vocab


def offered(shape: Shape) -> dict[str, Any]:
    """The arguments that every component may take by name."""
    return {"shape": shape} | {name: getattr(shape, name) for name in NUMBERS}
