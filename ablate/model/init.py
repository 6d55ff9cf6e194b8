"""Initialisation: standard normals keyed by (seed, parameter name), then scaled by the parameter's role.

A parameter's draws depend only on the seed and its own name.  Adding or changing a component thus leaves all other
parameters unchanged, and runs with the same seed are paired across variants.  Draws are nested: the matrix of a
narrower layer is the leading rows (for role `out` the leading columns) of a wider one's.

Roles: `embedding`, `position`, `in` (reads the residual stream), `out` (writes to it), `head`, `bias` (usually zeros),
`constant` (left as constructed), `own` (with the standard deviation that the parameter itself has: `own_std`).
"""

import hashlib
import math

import numpy as np
import torch
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.config.schema import Seed

FIXED = ("bias", "constant", "vectors")
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # role and shape of every parameter, by name


class Init:
    """Maps the role of a matrix to the standard deviation of its initial values; biases start at 0."""

    def scale(self, role: str, fan_in: int, fan_out: int) -> float:
        """Standard deviation for a matrix of `fan_out` rows and `fan_in` columns."""
        raise NotImplementedError

    def bias(self, fan_in: int) -> float:
        """Standard deviation of the bias of a matrix of `fan_in` columns."""
        return 0.0

    def shape(self, role: str, normals: Tensor) -> Tensor:
        """Transform standard normals to another distribution with mean 0 and variance 1."""
        return normals


class Normal(Init):
    """N(0, std²) for every matrix (BERT, Devlin 2018, arXiv 1810.04805)."""

    def __init__(self, std: float):
        self.std = at_least("std", std, 0)

    def scale(self, role: str, fan_in: int, fan_out: int) -> float:
        return self.std


class GPT2(Init):
    """N(0, std²) for every matrix, std / √(2 · layers) for those that write to the residual stream (Radford 2019)."""

    def __init__(self, layers: int, std: float):
        self.std = at_least("std", std, 0)
        self.layers = layers

    def scale(self, role: str, fan_in: int, fan_out: int) -> float:
        return self.std / math.sqrt(2 * self.layers) if role == "out" else self.std


class SmallInit(GPT2):
    """N(0, 2 / (5 · dim)) for every matrix, std / √(2 · layers) for those that write to the residual stream.  Nguyen &
    Salazar 2019, arXiv 1910.05895; the depth rule is GPT-2's."""

    def __init__(self, dim: int, layers: int):
        super().__init__(layers, math.sqrt(2 / (5 * dim)))


class Xavier(Init):
    """N(0, gain² · 2 / (fan_in + fan_out)) for matrices, N(0, 1 / dim) for embeddings (Glorot 2010; Vaswani 2017)."""

    def __init__(self, dim: int, gain: float):
        self.gain = at_least("gain", gain, 0)
        self.dim = dim

    def scale(self, role: str, fan_in: int, fan_out: int) -> float:
        if role in ("embedding", "position", "head"):
            return self.dim**-0.5
        return self.gain * math.sqrt(2 / (fan_in + fan_out))


class SmallEmbed(GPT2):
    """GPT-2's, except embeddings, which start at N(0, embedding_std²) (Peng 2023, RWKV, arXiv 2305.13048).  Embeddings
    should be normalised: by the first pre-norm, or with model.norm_embeddings=true as in RWKV."""

    def __init__(self, layers: int, std: float, embedding_std: float):
        super().__init__(layers, std)
        self.embedding_std = at_least("embedding_std", embedding_std, 0)

    def scale(self, role: str, fan_in: int, fan_out: int) -> float:
        return self.embedding_std if role == "embedding" else super().scale(role, fan_in, fan_out)


class Torch(Init):
    """U(−1/√fan_in, 1/√fan_in) for matrices and their biases, N(0, 1) for embeddings: the defaults of torch.nn."""

    def scale(self, role: str, fan_in: int, fan_out: int) -> float:
        return 1.0 if role in ("embedding", "position") else (3 * fan_in) ** -0.5

    def bias(self, fan_in: int) -> float:
        return (3 * fan_in) ** -0.5

    def shape(self, role: str, normals: Tensor) -> Tensor:
        """Uniform numbers √3 · (2Φ(z) − 1), which keep draws nested and shared; embeddings stay normal."""
        return normals if role in ("embedding", "position") else 3**0.5 * torch.erf(normals / 2**0.5)


def tag(layer: nn.Module, role: str) -> nn.Module:
    """Give a layer's `weight` a role, and its `bias`, if any, the role `bias`; returns the layer."""
    layer.weight.role = role
    if getattr(layer, "bias", None) is not None:
        layer.bias.role = "bias"
        layer.bias.fan_in = layer.weight.shape[-1]
    return layer


def with_role(values: Tensor, role: str, **facts: float) -> nn.Parameter:
    """A parameter with a role, and what that needs: `fan_in` of a bias; `own_std`, with which role `own` starts."""
    parameter = nn.Parameter(values)
    parameter.role = role
    for name, value in facts.items():
        setattr(parameter, name, value)
    return parameter


def embedding(rows: int, dim: int, role: str) -> nn.Embedding:
    """A table of `rows` vectors, not initialised: doing so on the meta device would import much of torch's compiler."""
    table = nn.Embedding.from_pretrained(torch.zeros(rows, dim), freeze=False)
    tag(table, role)
    return table


def role_of(parameter: Tensor) -> str:
    """The parameter's role; by default `in` for matrices and `constant` for vectors."""
    return getattr(parameter, "role", "in" if parameter.ndim > 1 else "constant")


def drawn_as(parameter: Tensor) -> str:
    """The role that decides the initial values: `vectors` for a table that starts from pretrained vectors."""
    return "vectors" if getattr(parameter, "trained_before", False) else role_of(parameter)


@torch.no_grad()
def initialise(model: nn.Module, init: Init, seed: int) -> None:
    """Initialise all parameters of a model in place, on the CPU, from the seed, their names and their roles."""
    kernels = kernels_of(model)
    for name, parameter in model.named_parameters():
        role = role_of(parameter)
        if role == "constant":
            continue
        like = getattr(parameter, "like", parameter)  # at another width, if that decides its scale
        scale = scale_of(like, role, init, is_kernel=parameter in kernels)
        if scale == 0:
            parameter.zero_()  # a product with zero would make half of them −0
            continue
        normals = draw_all(seed, name, tuple(parameter.shape), role)
        parameter.copy_(init.shape(role, normals) * scale * getattr(parameter, "gain", 1.0))


def data_seed(seeds: Seed, seed: int) -> int:
    """The seed of a run's batches and dropout, from the configuration's `seed` and the run's own."""
    return seed if seeds.data is None else seeds.data


def scale_of(parameter: Tensor, role: str, init: Init, is_kernel: bool) -> float:
    """Standard deviation of a parameter's initial values."""
    if role == "own":
        return parameter.own_std
    if role == "bias":
        return init.bias(getattr(parameter, "fan_in", 1))
    fan_in, fan_out = fans_of_kernel(parameter) if is_kernel else fans(parameter)
    return init.scale(role, fan_in, fan_out)


def fans(matrix: Tensor) -> tuple[int, int]:
    """fan_in and fan_out of a matrix (out, in), or of stacked matrices (n, in, out), which are applied as x · W_i."""
    if matrix.ndim > 2:
        return matrix.shape[-2], matrix.shape[-1]
    return matrix.shape[-1], matrix.shape[0]


def kernels_of(model: nn.Module) -> set[Tensor]:
    """The kernels of a model's convolutions."""
    convolutions = nn.Conv1d | nn.Conv2d | nn.Conv3d
    return {module.weight for module in model.modules() if isinstance(module, convolutions)}


def fans_of_kernel(kernel: Tensor) -> tuple[int, int]:
    """fan_in and fan_out of a convolution's kernel (out, in, width)."""
    return math.prod(kernel.shape[1:]), kernel.shape[0] * math.prod(kernel.shape[2:])


def draw_all(seed: int, name: str, shape: tuple[int, ...], role: str) -> Tensor:
    """Standard normals of a parameter.  Stacked matrices (n, in, out) have a stream each, filled in the same order of
    features as a layer's matrix (out, in)."""
    if len(shape) != 3:
        return draw(seed, name, shape, by_column=role == "out")
    matrices = [draw(seed, f"{name}/{i}", shape[1:], by_column=role != "out") for i in range(shape[0])]
    return torch.stack(matrices)


def draw(seed: int, name: str, shape: tuple[int, ...], by_column: bool = False) -> Tensor:
    """Standard normals of a shape from the stream of (seed, name), filled by row or by column."""
    key = int.from_bytes(hashlib.sha256(f"init/{seed}/{name}".encode()).digest()[:16], "little")
    # NumPy fills sequentially; with torch.randn a shorter draw would not be a prefix of a longer one.
    stream = np.random.Generator(np.random.Philox(key=key))
    if by_column:
        return torch.from_numpy(stream.standard_normal(shape[::-1], dtype=np.float32)).T
    return torch.from_numpy(stream.standard_normal(shape, dtype=np.float32))


def shared_draws(shapes: Shapes, other: Shapes) -> float:
    """Of the random draws of a model's parameters, the fraction that `other` has too at equal seed."""
    drawn = 0
    shared = 0
    for name, (role, shape) in shapes.items():
        if role in FIXED:
            continue
        drawn += math.prod(shape)
        if name in other:
            other_role, other_shape = other[name]
            shared += _overlap(role, shape, other_role, other_shape)
    return shared / max(1, drawn)


def _overlap(role: str, shape: tuple[int, ...], other_role: str, other_shape: tuple[int, ...]) -> int:
    """The number of initial values that two parameters of one name have in common: draws are nested, see above."""
    by_column = role == "out"
    if other_role in FIXED or (other_role == "out") != by_column:
        return 0
    stacked = 1
    if len(shape) == len(other_shape) == 3:
        stacked = min(shape[0], other_shape[0])
        shape = shape[1:]
        other_shape = other_shape[1:]
        by_column = not by_column
    if by_column:
        shape = shape[::-1]
        other_shape = other_shape[::-1]
    if shape[1:] != other_shape[1:]:
        return 0
    return stacked * min(shape[0], other_shape[0]) * math.prod(shape[1:])
