"""Model cost: parameters and FLOPs.  Large models are counted on the meta device, where nothing is computed."""

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ablate.config.depth import is_patterned, variants_of
from ablate.config.files import read_plain
from ablate.config.groups import CONF
from ablate.config.schema import LAYERS, Config
from ablate.config.typed_json import Record, record
from ablate.model.build import build_model, initialised_model
from ablate.model.init import Shapes, drawn_as
from ablate.model.norm import running_norms

# Slices of a card, and other cards with similar names.
UNKNOWN_CARDS = re.compile(r"\bMIG\b|\b(RTX \d+) (Ti|D|SUPER|Laptop)\b")
NORMS_OUTSIDE = ("embed_norm", "final_norm", "head.norm")
MAX_PARAMETERS = 10**12  # largest number of parameters of a model
QUICK = 10**9  # FLOPs of a forward pass that the CPU computes sooner than the meta device only counts them
COMPUTED = 10**9  # largest model that is run on the CPU if it cannot be counted on the meta device
# Operators of torch with more than one operation per element that are not products: scans, solvers, transforms.
LONG = ("cumsum", "cumprod", "logcumsumexp", "linalg_", "_linalg_", "triangular_solve", "cholesky", "_fft_", "sort")
CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
SHORT = ("linalg_vector_norm",)  # exceptions: a sum of squares


@record
class Budget(Record):
    """The cost of one cell.

    `flops_per_token` are those of the forward pass at the training context, times the gradients per training step:
    attention counts all pairs, embeddings count nothing; it includes what components state with `stated_flops`.
    """

    params: int  # tied ones count once
    flops_per_token: float
    shapes: Shapes
    notes: list[str]  # of the components, without duplicates
    hidden: int | None  # width of the FFNs; None without FFNs, or if widths differ
    unused: tuple[str, ...]  # component groups that the model does not use: norm with residual=rezero
    running: bool  # whether norms keep running statistics, for which runs report additional final losses
    widths: tuple[
        tuple[int, float], ...
    ] = ()  # of FFNs, with the share that a token uses, < 1 for a mixture of experts

    @property
    def core(self) -> int:
        """Parameters except token embedding and head; position tables count, shared layers count once."""
        return sum(
            math.prod(shape)
            for name, (role, shape) in self.shapes.items()
            if role not in ("embedding", "vectors") and not name.startswith("head.")
        )


def device_for(config: Config, task: Any) -> str:
    """The device that a model is counted on: the CPU for a small one of built-in components."""
    flops = 2 * estimate(config, task.vocab) * task.positions
    return "cpu" if flops < QUICK and not config.user else "meta"


def count(config: Config, task: Any) -> Budget:
    """Build the model of a resolved configuration and count.  Raises the same errors as `build_model`.  Uses the CPU
    also for a model that cannot run on the meta device because its computation depends on the data."""
    with torch.device(device_for(config, task)):
        model = build_model(config, task)
        try:
            flops, flop_notes = forward_flops(model, task.blank())
        except Exception:  # a user component may fail in any way when it reads a value on the meta device
            if sum(p.numel() for p in model.parameters()) > COMPUTED:
                raise
            flops = math.nan
    if math.isnan(flops):
        model = initialised_model(config, task, 0)
        flops, flop_notes = forward_flops(model, one_example(task))
        flop_notes.append("its FLOPs are those of one random example: what it computes depends on the data")
    notes = [*notes_of_components(model), *note_on_norms(model, config), *note_on_frozen(model), *note_on_later(model)]
    if "cross_attention" in model.unused:
        notes.append("cross_attention= changes nothing here: this model attends to no other sequence")
    ffns = [module for name, module in model.named_modules() if name.rpartition(".")[2] == "ffn"]
    widths = [
        (ffn.hidden, getattr(ffn, "active", 1.0)) for ffn in ffns if isinstance(getattr(ffn, "hidden", None), int)
    ]
    distinct_widths = {width for width, _ in widths}
    same_width = len(widths) == len(ffns) and len(distinct_widths) == 1
    parameters = dict(model.named_parameters())
    return Budget(
        params=sum(p.numel() for p in parameters.values()),
        flops_per_token=flops / task.positions,
        shapes={name: (drawn_as(p), tuple(p.shape)) for name, p in parameters.items()},
        notes=[*notes, *flop_notes],
        hidden=widths[0][0] if same_width else None,
        unused=model.unused,
        running=bool(running_norms(model)),
        widths=tuple(widths),
    )


def forward_flops(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[float, list[str]]:
    """FLOPs of a forward pass, including stated ones, and notes on what they leave out."""
    model.train(bool(getattr(model, "later", ())))  # also count blocks that only training uses
    counter = Counter(model)
    position_notes = note_unused_positions(model)
    with counter, torch.no_grad():
        model(**inputs)
    return counter.flops, [*dict.fromkeys(position_notes), *counter.notes]


def one_example(task: Any) -> dict[str, Tensor]:
    """Random inputs of one example, with masks of ones."""
    generator = torch.Generator().manual_seed(0)
    inputs = {}
    for name, x in task.blank().items():
        if name.endswith("mask"):
            inputs[name] = x
        elif x.is_floating_point():
            inputs[name] = torch.randn(x.shape, generator=generator)
        else:
            inputs[name] = torch.randint(task.vocab, x.shape, generator=generator)
    return inputs


def notes_of_components(model: nn.Module) -> list[str]:
    """The notes of a model's components, without duplicates."""
    notes = []
    for module in model.modules():
        note = getattr(module, "note", None)
        if isinstance(note, str):
            notes.append(f"{type(module).__name__}: {note}")
    return list(dict.fromkeys(notes))


def note_on_norms(model: nn.Module, config: Config) -> list[str]:
    """A note on which norm the modules outside of the layers use if norms differ between layers."""
    if not is_patterned(config.norm):
        return []
    names = [f".{name}" for name, _ in model.named_modules()]
    norms = [norm for norm in NORMS_OUTSIDE if any(name.endswith(f".{norm}") for name in names)]
    if not norms:
        return []
    return [f"{' and '.join(norms)} outside of the layers: norm={config.norm[LAYERS][-1]}, as in the last one"]


def note_on_frozen(model: nn.Module) -> list[str]:
    """A note on frozen parameters, if there are any."""
    names = []
    for module in model.modules():
        if any(not p.requires_grad for p in module.parameters(recurse=False)):
            names.append(type(module).__name__)
    if not names:
        return []
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    names = list(dict.fromkeys(names))
    return [f"{', '.join(names)}: frozen; {trained:,} of its model's {total:,} parameters are trained"]


def note_on_later(model: nn.Module) -> list[str]:
    """A note on blocks for later tokens, which only training uses."""
    blocks = getattr(model, "later", ())
    if not blocks:
        return []
    count = sum(p.numel() for block in blocks for p in block.parameters())
    note = f"{count:,} of its parameters, and their FLOPs, belong to blocks for later tokens, used in training only"
    return [f"{note}; match= includes them, so the evaluated part of the model is smaller"]


def estimate(config: Config, vocab: int) -> int:
    """Approximate number of parameters, L · (4 d · a + 2 d · h) + V · d, from the settings alone."""
    model = config.model
    widths = [ffn.get("hidden") or int(model.dim * max(ffn.get("mult") or 1, 1)) for ffn in variants_of(config.ffn)]
    heads = model.dim if model.head_dim is None else model.heads * model.head_dim  # features of all heads
    layers = 1 if model.share_layers else model.layers
    return int(layers * (4 * model.dim * heads + 2 * model.dim * max(widths)) + vocab * model.dim)


def utilisation(flops_per_token: float, tokens_per_second: float, device: str, precision: str) -> float | None:
    """Model FLOPs utilisation, 3 · FLOPs per token · tokens/s / peak (Chowdhery 2022), if the peak is known.  It is
    unknown for slices of a card (MIG), whose share of the cores differs by card and profile."""
    peak = peak_of(device)
    if peak is None or precision != "bf16":
        return None
    return 3 * flops_per_token * tokens_per_second / peak


def peak_of(device: str) -> float | None:
    """Dense bf16 peak in FLOP/s of a device by its name, None if unknown."""
    if UNKNOWN_CARDS.search(device):
        return None
    for name, teraflops in read_plain(CONF / "cards.yaml")["peak"].items():
        if re.search(rf"\b{name}\b", device):
            return teraflops * 1e12
    return None


class Counter(TorchDispatchMode):
    """Sums the FLOPs of a model's products and those that its modules state, and collects other operators whose work is
    unknown.

    A module states them in a method `stated_flops(batch, length)`, for an input (batch, length, features): those of a
    forward pass except matrix products and convolutions, which are counted anyway.  Use it around a forward pass.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.flops = 0.0
        self.uncounted: set[str] = set()
        self.depth = 0  # of modules that state their FLOPs
        for module in model.modules():
            if hasattr(module, "stated_flops"):
                module.register_forward_pre_hook(self.enter)
                module.register_forward_hook(self.leave)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """For torch: no, as otherwise it would load its compiler here, which takes a second."""
        return False

    @property
    def notes(self) -> list[str]:
        """A note on operators whose FLOPs are unknown, if there are any."""
        if not self.uncounted:
            return []
        names = ", ".join(sorted(self.uncounted))
        return [f"its FLOPs leave out {names}, which only their part can state, as stated_flops(batch, length)"]

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Before the forward pass of a module that states its FLOPs."""
        x: Tensor = inputs[0]
        self.flops += module.stated_flops(x.shape[0], x.shape[1])
        self.depth += 1

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """After it."""
        self.depth -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func._overloadpacket
        formula = flop_formula(packet)
        if formula is None and func is not torch.ops.prim.device.default:
            with self:  # an operator that is made of others, such as a product of groups
                output = func.decompose(*args, **(kwargs or {}))
            if output is not NotImplemented:
                return output
        output = func(*args, **(kwargs or {}))
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=output)
        elif not self.depth and is_long(packet):
            self.uncounted.add(str(packet).replace(".", "::").removeprefix("aten::").lstrip("_"))
        return output


def flop_formula(packet: Any) -> Callable[..., int] | None:
    """The function that counts an operator's FLOPs; None for one that has none.  Operators of ours are registered when
    their modules are built."""
    if packet is CPU_ATTENTION:
        packet = torch.ops.aten._scaled_dot_product_flash_attention
    formula: Callable[..., int] | None = flop_registry.get(packet)
    return formula


def is_long(packet: Any) -> bool:
    """Whether an operator's work may not be proportional to its elements: one of `LONG`, or not one of torch's own."""
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace not in ("aten", "prim", "prims"):
        return True
    return name.startswith(LONG) and name not in SHORT


def note_unused_positions(model: nn.Module) -> list[str]:
    """A list that a forward pass fills with notes on mixers that ignore the position encoding.  A mixer's `reads` are
    the fields of Places that it uses; a mixer without this attribute uses all."""
    notes: list[str] = []

    def look(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fields = {name for name, value in kwargs["places"]._asdict().items() if value is not None} - {"values"}
        if fields and fields.isdisjoint(module.reads):
            notes.append(f"{type(module).__name__}: what position= does to queries, keys and scores does not reach it")

    for module in model.modules():
        if hasattr(module, "reads"):
            module.register_forward_pre_hook(look, with_kwargs=True)
    return notes
