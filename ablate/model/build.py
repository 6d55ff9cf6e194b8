"""Builds the model of a resolved configuration and initialises its parameters from a seed."""

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import nn

from ablate.config.components import NESTED, NUMBERS, PLACE, RESERVED, WIRING, bind, own_of, parameters_of, resolve
from ablate.config.depth import layer_of, mapped, variants_of
from ablate.config.errors import BadComponent
from ablate.config.ranges import at_least, within
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
    model = ModelBuilder(config, task).build()
    base = base_of(config)
    if base is None:
        return model
    with torch.device("meta"):  # only shapes are read
        try:
            base_model = ModelBuilder(base, task).build()
        except ValueError as error:  # about sizes that the user did not write
            raise BadComponent("parametrization.base_dim", f"{base.model.dim} makes no model ({error})") from None
        parametrization_of(config).follow(model, base_model)
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


class ModelBuilder:
    """Builds a model from its parts, which the constructors of a configuration's variants make; without the
    parametrization.  Each method makes a new module, for one place of the model."""

    def __init__(self, config: Config, task: Any):
        self.config = config
        self.shape = model_shape(config, task)
        self.has_norm = False  # whether the model has any
        self.has_embedding = False
        self.has_cross_attention = False  # one that is not the layer's own attention
        arguments = offered(self.shape)
        in_layer = arguments | dict.fromkeys(PLACE)
        # Position encodings and norms beside an embedding have its width.
        beside_embedding = offered(dataclasses.replace(self.shape, dim=self.shape.table_dim))
        self.norms = self.constructors("norm", in_layer)
        self.ffns = self.constructors("ffn", in_layer)
        self.attentions = self.constructors("attention", in_layer)
        self.residuals = self.constructors("residual", in_layer | dict.fromkeys(WIRING))
        self.embedding_norms = self.constructors("norm", beside_embedding | dict.fromkeys(PLACE))
        self.cross_attentions = self.constructors("cross_attention", in_layer | dict.fromkeys(NESTED))
        self.positions = self.constructors("position", beside_embedding)
        vocab = {"vocab": self.shape.vocab}
        self.make_embedding = bind("embedding", config.embedding, arguments | vocab, config.user)

    def constructors(self, group: str, arguments: dict[str, Any]) -> list[partial[Any]]:
        """The constructors of a group's variants, one per layer; layers of one variant have the same."""
        user = self.config.user
        make = lambda settings: bind(group, settings, arguments, user)  # noqa: E731
        return layer_of(getattr(self.config, group), make, self.config.model.layers)

    def norm(self, layer: int | None = None) -> nn.Module:
        """A norm of a layer, or outside of the layers."""
        self.has_norm = True
        return in_place(self.norms, layer)()

    def embedding_norm(self) -> nn.Module:
        """A norm of an embedding's width."""
        self.has_norm = True
        return in_place(self.embedding_norms, None)()

    def embedding(self) -> nn.Module:
        """A token embedding."""
        self.has_embedding = True
        embedding = self.make_embedding()
        if self.shape.tie_embeddings:
            check_tied(embedding, self.shape.vocab, self.shape.table_dim)
        return embedding

    def position(self) -> nn.Module:
        """The position encoding of a stack."""
        variants = list(dict.fromkeys(self.positions))
        if len(variants) == 1:
            return variants[0]()
        parts = [make() for make in variants]
        return OverLayers(parts, [variants.index(make) for make in self.positions])

    def cross_attention(self, layer: int) -> nn.Module:
        """The cross-attention of a layer: a second module of its own attention, or a separate choice."""
        make = in_place(self.cross_attentions, layer)
        if follows_attention(make):
            return make(attention=in_place(self.attentions, layer))
        self.has_cross_attention = True
        module = make()
        if mixes_values(module):
            raise BadComponent("cross_attention.value_residual", "is for self-attention; leave it out")
        return module

    def block(self, layer: int, crosses: bool = False) -> nn.Module:
        """A layer; one that `crosses` also attends to a memory."""
        attention = in_place(self.attentions, layer)()
        ffn = in_place(self.ffns, layer)()
        cross_attention = self.cross_attention(layer) if crosses else None
        sublayers = Sublayers(attention, cross_attention, ffn, partial(self.norm, layer))
        return in_place(self.residuals, layer)(sublayers=sublayers)

    def cross_block(self, layer: int) -> nn.Module:
        """A layer that also attends to a memory."""
        return self.block(layer, crosses=True)

    def build(self) -> nn.Module:
        """The model.  Raises BadComponent if its parts do not fit together."""
        config = self.config
        form = resolve("model", config.model._target_, config.user)
        parts = Parts(self.block, self.cross_block, self.norm, self.position, self.embedding_norm, self.embedding)
        available = dataclasses.asdict(self.shape) | parts._asdict() | {"shape": self.shape, "parts": parts}
        arguments = {name: value for name, value in available.items() if name in parameters_of(form)}
        # Constructors use the global generator; restore it, since their draws are overwritten by `initialise`.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # torch.manual_seed would seed the accelerators, too
            model = form(**arguments, **own_of(config, "model"))
        if self.shape.later_tokens and not getattr(model, "later", None):
            raise BadComponent("objective", f"{form.__name__} makes no blocks for later tokens; write model=decoder")
        keep_hidden(model, build_objective(config))
        if not self.has_embedding and not self.embeds_plainly():
            problem = "has no effect: the inputs of this model are not ids, so it has no embedding table; leave it out"
            raise BadComponent("embedding", problem)
        model.unused = self.unused_groups()
        return model

    def embeds_plainly(self) -> bool:
        """Whether the choice of an embedding is the usual one."""
        settings = self.config.embedding
        is_plain = resolve("embedding", settings["_target_"], self.config.user) is Embedding
        return is_plain and not settings["width"] and not settings["frozen"]

    def unused_groups(self) -> tuple[str, ...]:
        """The groups whose choice changes nothing in this model."""
        groups = []
        if not self.has_norm:
            groups.append("norm")
        if not self.has_cross_attention and not all(map(follows_attention, self.cross_attentions)):
            groups.append("cross_attention")
        return tuple(groups)


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


def in_place(constructors: list[partial[Any]], layer: int | None) -> partial[Any]:
    """A layer's constructor, with its layer number if it takes one; without a layer, that of the last layer."""
    make = constructors[-1 if layer is None else layer]
    return partial(make, layer=layer) if "layer" in make.keywords else make


def follows_attention(cross_attention: partial[Any]) -> bool:
    """Whether cross-attention is built from the layer's own attention."""
    return not cross_attention.keywords.keys().isdisjoint(NESTED)


def build_init(config: Config, task: Any) -> Any:
    """The initialisation of a resolved configuration's model for a task."""
    return bind("init", config.init, offered(model_shape(config, task)), config.user)()


def model_shape(config: Config, task: Any) -> ModelShape:
    """The sizes of a model, from its configuration and task.  Raises ValueError for sizes that make none."""
    model = config.model
    width = config.embedding.get("width")
    if width is not None:
        at_least("embedding.width", width, 1)
    within("model.dropout", model.dropout, 0, 1, "[)")
    if model.head_dim is None and model.dim % model.heads:
        raise ValueError(f"model.dim={model.dim} must be divisible by model.heads={model.heads}")
    stacks = getattr(resolve("model", model._target_, config.user), "stacks", ("decoder",))
    sizes = {key: value for key, value in vars(model).items() if key not in RESERVED}
    sizes["tie_embeddings"] = ties(config, task)
    sizes["head_dim"] = model.head_dim or model.dim // model.heads
    return ModelShape(
        **sizes,
        embedding_dim=width,
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
