"""Residual styles: a block holds its sublayers and norms and defines how they are connected."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.errors import BadComponent
from ablate.config.ranges import at_least
from ablate.model.dropout import Dropout
from ablate.model.init import with_role
from ablate.model.position import Places
from ablate.model.products import as_given
from ablate.model.shape import Shape

Step = Callable[[Tensor], Tensor]


class Stream(NamedTuple):
    """The values passed from block to block."""

    x: Tensor  # the residual stream (B, T, C); styles with several streams have one more axis
    values: Tensor | None = None  # the first layer's attention values (B, H, T, D), if later layers use them


class Sublayers(NamedTuple):
    """The sublayers of a block and a factory for its norms; `cross_attention` attends to a memory."""

    attention: nn.Module
    cross_attention: nn.Module | None
    ffn: nn.Module | None
    norm: Callable[[], nn.Module]


class Block(nn.Module):
    """Attention, cross-attention if there is any, and FFN; a subclass connects them in `join` or `wire`."""

    final_norm: bool  # whether the stack needs a norm after its last block
    norms_per_sublayer = 1  # norms per sublayer
    streams = 1  # number of residual streams
    join: Callable[..., Tensor]  # x after one sublayer f, given f, its dropout and its norms

    def __init__(self, shape: Shape, sublayers: Sublayers):
        super().__init__()
        self.attention = sublayers.attention
        self.cross_attention = sublayers.cross_attention
        self.ffn = sublayers.ffn
        self.ffn_takes_mask = self.ffn is not None and "mask" in inspect.signature(self.ffn.forward).parameters
        count = 1 + (self.cross_attention is not None) + (self.ffn is not None)
        self.norms = nn.ModuleList(sublayers.norm() for _ in range(self.norms_per_sublayer * count))
        self.dropouts = nn.ModuleList(Dropout(shape.dropout) for _ in range(count))

    def enter(self, x: Tensor) -> Stream:
        """The input of the first block, from embeddings (B, T, C)."""
        return Stream(x)

    def leave(self, stream: Stream) -> Tensor:
        """The output of a block if it is the stack's last: (B, T, C)."""
        return stream.x

    def forward(
        self,
        stream: Stream,
        places: Places,
        causal: bool,
        mask: Tensor | None = None,  # (B, T)
        memory: Tensor | None = None,  # (B, S, C)
        memory_mask: Tensor | None = None,  # (B, S)
    ) -> Stream:
        values = stream.values

        def attention(x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
            nonlocal values
            if not mixes_values(self.attention):
                return self.attention(x, places=places, causal=causal, mask=mask)
            if values is None:
                values = self.attention.values(x)
            return self.attention(x, places=places._replace(values=values), causal=causal, mask=mask)

        sublayers: list[Step] = [attention]
        if self.cross_attention is not None:
            cross = partial(self.cross_attention, places=Places(), causal=False, mask=memory_mask, memory=memory)
            sublayers.append(cross)
        if self.ffn is not None:
            sublayers.append(partial(self.ffn, mask=mask) if self.ffn_takes_mask else self.ffn)
        norms = [partial(norm, mask=mask) for norm in self.norms]
        x = self.wire(stream.x, sublayers, norms)
        return Stream(x, values)

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        """Connect the sublayers, functions of x alone; here one after another by `join`, with their own norms."""
        n = self.norms_per_sublayer
        for i, (f, dropout) in enumerate(zip(sublayers, self.dropouts, strict=True)):
            x = self.join(x, f, dropout, *norms[n * i : n * (i + 1)])
        return x


class PreNorm(Block):
    """x ← x + f(norm(x)) for each sublayer f, and a norm after the last block (Xiong 2020, arXiv 2002.04745)."""

    final_norm = True

    def join(self, x: Tensor, f: Step, dropout: Step, norm: Step) -> Tensor:
        return x + dropout(f(norm(x)))


class PostNorm(Block):
    """x ← norm(x + f(x)) for each sublayer f (Vaswani 2017, arXiv 1706.03762)."""

    final_norm = False

    def join(self, x: Tensor, f: Step, dropout: Step, norm: Step) -> Tensor:
        return norm(x + dropout(f(x)))


class Sandwich(Block):
    """x ← x + norm'(f(norm(x))) for each sublayer f, and a final norm (Ding 2021, arXiv 2105.13290; Gemma 2)."""

    final_norm = True
    norms_per_sublayer = 2

    def join(self, x: Tensor, f: Step, dropout: Step, before: Step, after: Step) -> Tensor:
        return x + dropout(after(f(before(x))))


class ResPost(Block):
    """x ← x + norm(f(x)) for each sublayer f, and a final norm (Liu 2021, arXiv 2111.09883; OLMo 2)."""

    final_norm = True

    def join(self, x: Tensor, f: Step, dropout: Step, norm: Step) -> Tensor:
        return x + dropout(norm(f(x)))


class Parallel(Block):
    """x ← x + Σ f(norm_f(x)) over all sublayers f, and a final norm (Wang & Komatsuzaki 2021, GPT-J; GPT-NeoX).  With
    `shared` norms one norm serves all sublayers, as in GPT-J and PaLM; GPT-NeoX has `separate` ones."""

    final_norm = True

    def __init__(self, shape: Shape, sublayers: Sublayers, norms: Literal["separate", "shared"]):
        super().__init__(shape, sublayers)
        if norms == "shared":
            self.norms = self.norms[:1]

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        normed = [norm(x) for norm in norms]
        if len(normed) == 1:
            normed = normed * len(sublayers)
        total = torch.zeros_like(x)
        for f, y, dropout in zip(sublayers, normed, self.dropouts, strict=True):
            total = total + dropout(f(y))
        return x + total


class ReZero(Block):
    """x ← x + α f(x) for each sublayer f, one α per block, initially 0; no norm (Bachlechner 2020, 2003.04887)."""

    final_norm = False
    norms_per_sublayer = 0
    note = "its blocks have no norms, whatever norm= says"

    def __init__(self, shape: Shape, sublayers: Sublayers):
        super().__init__(shape, sublayers)
        self.alpha = nn.Parameter(torch.zeros(()))

    def join(self, x: Tensor, f: Step, dropout: Step) -> Tensor:
        return x + self.alpha * dropout(f(x))


class LayerScale(Block):
    """x ← x + λ ⊙ f(norm(x)) for each sublayer f, λ (C,) initially `init`; a final norm (Touvron 2021, 2103.17239)."""

    final_norm = True

    def __init__(self, shape: Shape, sublayers: Sublayers, init: float):
        super().__init__(shape, sublayers)
        self.scales = nn.ParameterList(torch.full((shape.dim,), float(init)) for _ in self.dropouts)

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, C) -> (B, T, C)
        for f, norm, scale, dropout in zip(sublayers, norms, self.scales, self.dropouts, strict=True):
            x = x + dropout(scale * f(norm(x)))
        return x


class DeepNorm(Block):
    """x ← norm(α x + f(x)) for each sublayer f; FFN, values and outputs are initialised × β (Wang 2022, 2203.00555).

    α = (2N)^¼, β = (8N)^−¼ for one stack of N layers.  With an encoder of N and a decoder of M layers:
    α = .81 (N⁴M)^(1/16), β = .87 (N⁴M)^(−1/16) in the encoder, α = (3M)^¼, β = (12M)^−¼ in the decoder.
    """

    final_norm = False
    note = "its β multiplies what init gives; the paper's is init=xavier"

    def __init__(self, shape: Shape, sublayers: Sublayers):
        super().__init__(shape, sublayers)
        n = shape.encoder_layers
        m = shape.decoder_layers
        if n == 0 or m == 0:  # one stack
            self.alpha = (2 * (n + m)) ** 0.25
            beta = (8 * (n + m)) ** -0.25
        elif self.cross_attention is None:  # in the encoder
            self.alpha = 0.81 * (n**4 * m) ** (1 / 16)
            beta = 0.87 * (n**4 * m) ** (-1 / 16)
        else:
            self.alpha = (3 * m) ** 0.25
            beta = (12 * m) ** -0.25
        for matrix in self.scaled_matrices():
            matrix.gain = beta  # a factor that initialise applies

    def scaled_matrices(self) -> Iterator[nn.Parameter]:
        """The matrices that the paper scales: all of the FFN, and the values and outputs of attention."""
        for name, parameter in self.named_parameters():
            sublayer, _, rest = name.partition(".")
            in_ffn = sublayer == "ffn"
            of_attention = sublayer.endswith("attention") and rest.startswith(("value.", "out."))
            if (in_ffn or of_attention) and parameter.ndim > 1:
                yield parameter

    def join(self, x: Tensor, f: Step, dropout: Step, norm: Step) -> Tensor:
        return norm(self.alpha * x + dropout(f(x)))


class NoResidual(Block):
    """x ← f(norm(x)) for each sublayer f, and a final norm: no skip connections (as in Dong 2021, 2103.03404)."""

    final_norm = True

    def join(self, x: Tensor, f: Step, dropout: Step, norm: Step) -> Tensor:
        return dropout(f(norm(x)))


class HyperConnections(Block):
    """H ← Aᵀ H + b f(norm(Hᵀ m))ᵀ for each sublayer f, and a final norm, over n streams H (n, C) of each position.

    H starts as n copies of the embedding and ends as the mean of its streams.  The paper takes their sum, but the final
    norm removes that factor (Zhu 2024, arXiv 2409.19606).  Initially A = 1, b = (1, …, 1), and sublayer i of the s in
    layer l reads stream l s + i mod n, as pre-norm.  With static `weights` A, m and b are trained numbers; with dynamic
    ones g · tanh(norm(H) W) is added per position, separately for A, m and b, with W initially 0, g = 0.01, and a norm
    without weights.
    """

    final_norm = True

    def __init__(
        self, shape: Shape, sublayers: Sublayers, layer: int, streams: int, weights: Literal["static", "dynamic"]
    ):
        super().__init__(shape, sublayers)
        self.streams = at_least("streams", streams, 1)
        self.connections = nn.ModuleList()
        for i in range(len(self.dropouts)):
            read = (layer * len(self.dropouts) + i) % streams
            self.connections.append(Connection(shape.dim, streams, read, weights == "dynamic"))

    def enter(self, x: Tensor) -> Stream:  # (B, T, C) -> (B, T, n, C)
        return Stream(x[..., None, :].expand(*x.shape[:-1], self.streams, -1))

    def leave(self, stream: Stream) -> Tensor:  # (B, T, n, C) -> (B, T, C)
        return stream.x.mean(-2)

    def wire(self, x: Tensor, sublayers: Sequence[Step], norms: Sequence[Step]) -> Tensor:  # (B, T, n, C) -> the same
        for f, norm, connection, dropout in zip(sublayers, norms, self.connections, self.dropouts, strict=True):
            write, read_and_keep = connection(x).split((1, self.streams + 1), -1)  # b (…, n, 1), m and A (…, n, n + 1)
            with as_given(x):  # otherwise bf16 would round the streams in every sublayer
                mixed = read_and_keep.transpose(-1, -2).to(x.dtype) @ x
            output = dropout(f(norm(mixed[..., 0, :])))
            x = mixed[..., 1:, :] + write * output[..., None, :]
        return x


class Connection(nn.Module):
    """b, m and A of one sublayer, concatenated: (n, n + 2), or per position (B, T, n, C) -> (B, T, n, n + 2)."""

    def __init__(self, dim: int, streams: int, read: int, dynamic: bool):
        super().__init__()
        self.streams = streams
        identity = torch.eye(streams)
        static = torch.cat((torch.ones(streams, 1), identity[:, read : read + 1], identity), 1)
        self.static = nn.Parameter(static.flatten())  # a vector, so that it has no weight decay
        self.dynamic = None
        self.scales = None
        if dynamic:
            self.dynamic = with_role(torch.zeros(streams + 2, dim), "constant")
            self.scales = nn.Parameter(torch.full((2,), 0.01))  # of b, and of m and A

    def forward(self, x: Tensor) -> Tensor:
        static = self.static.unflatten(0, (self.streams, -1))
        if self.dynamic is None or self.scales is None:
            return static.clone()  # torch's FLOP counter cannot hook the gradient of a view of a parameter
        dynamic = F.linear(F.layer_norm(x, x.shape[-1:]), self.dynamic).tanh()
        scales = torch.cat((self.scales[:1], self.scales[1:].expand(self.streams + 1)))
        return static + scales * dynamic


def mixes_values(attention: nn.Module) -> bool:
    """Whether an attention module uses a value residual."""
    return getattr(attention, "value_residual", None) is not None


def connect_values(blocks: Sequence[Block]) -> None:
    """Connect later layers that use a value residual to the first layer's values.  Raises BadComponent."""
    first, *later = (block.attention for block in blocks)
    key = "attention.value_residual"
    problem = "mixes in the values of the first layer"
    for attention in later:
        if not mixes_values(attention):
            continue
        if not mixes_values(first):
            name = type(first).__name__
            raise BadComponent(key, f"{problem}, whose {name} hands on none; begin with one that does")
        attention.follow()
    if mixes_values(first) and not any(map(mixes_values, later)):
        advice = "choose one that does for a later layer" if later else "write model.layers=2"
        raise BadComponent(key, f"{problem}, and no later one mixes them in; {advice}")
