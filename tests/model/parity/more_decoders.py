"""Decoders of `transformers` that need what blocks, heads and positions leave open: biases each, norms without some."""

import re
from collections.abc import Callable
from typing import Any

import torch
from parity.compare import CONTEXT, DIM, HEADS, Weights, renamed, split, table
from parity.decoders import (
    BEFORE,
    BLOOM,
    DROPOUT,
    GATED_FFN,
    GROUPED,
    NEOX_BLOCK,
    OUT_PROJ,
    QKV,
    WIDE,
    by_head,
    decoder,
    llama,
    rope,
)
from torch import Tensor

HEAD_DIM = DIM // HEADS
PHI_BLOCK = QKV | {"input_layernorm": "norms.0", "self_attn.dense": "attention.out"}
PHI_BLOCK |= {"mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down"}
PHI = table("model.", "layers", PHI_BLOCK, {"embed_tokens": "embed", "final_layernorm": "final_norm"})
GPTJ_BLOCK = {name.replace("self_attn", "attn"): ours for name, ours in QKV.items()} | {
    "attn.out_proj": "attention.out"
}
GPTJ_BLOCK |= {"ln_1": "norms.0", "mlp.fc_in": "ffn.up", "mlp.fc_out": "ffn.down"}
GPTJ = table("transformer.", "h", GPTJ_BLOCK, {"wte": "embed", "ln_f": "final_norm"})
MPT_BLOCK = {"norm_1": "norms.0", "attn.Wqkv": "attention.fused", "attn.out_proj": "attention.out"}
MPT_BLOCK |= {"norm_2": "norms.1", "ffn.up_proj": "ffn.up", "ffn.down_proj": "ffn.down"}
MPT = table("transformer.", "blocks", MPT_BLOCK, {"wte": "embed", "norm_f": "final_norm"})
PERSIMMON_BLOCK = {name.replace("attention.", "self_attn."): ours for name, ours in NEOX_BLOCK.items()}
PERSIMMON_BLOCK |= {f"self_attn.{name[0]}_layernorm": f"attention.{name}_norm" for name in ("query", "key")}
PERSIMMON = table("model.", "layers", PERSIMMON_BLOCK, {"embed_tokens": "embed", "final_layernorm": "final_norm"})
XGLM = table("model.", "layers", OUT_PROJ, {"embed_tokens": "embed", "layer_norm": "final_norm"})
HEAD = {"lm_head": "head"}


def mapped(names: dict[str, str]) -> Callable[[Weights], Weights]:
    """Parameters that only have other names."""
    return lambda weights: renamed(weights, names)


def paired(weights: Weights, turned: int, head_dim: int) -> Weights:
    """Queries and keys of a reference that turns pairs (2i, 2i+1) of the first features of each head."""
    even, odd = torch.arange(0, turned, 2), torch.arange(1, turned, 2)
    found = {}
    for name, weight in weights.items():
        if name.endswith(("query.weight", "key.weight")):
            rows = weight.unflatten(0, (-1, head_dim))
            weight = torch.cat((rows[:, even], rows[:, odd], rows[:, turned:]), 1).flatten(0, 1)
        found[name] = weight
    return found


def gptj(weights: Weights) -> Weights:
    """GPT-J, in two heads of 16 features."""
    return paired(renamed(weights, GPTJ | HEAD), 4, 16)


def cohere(weights: Weights) -> Weights:
    """Command R's logits are scaled, which its last norm's gain can say as well."""
    found = paired(llama({"input_layernorm": 0})(weights), HEAD_DIM, HEAD_DIM)
    return found | {"final_norm.weight": found["final_norm.weight"] / 16}


def hunyuan(weights: Weights) -> Weights:
    """HunYuan."""
    return llama(BEFORE)({re.sub("(q|k)(?:uery|ey)_layernorm", r"\1_norm", name): w for name, w in weights.items()})


def mpt(weights: Weights) -> Weights:
    """MPT."""
    return split(renamed(weights, MPT), "fused", lambda w: w.chunk(3))


def falcon(weights: Weights) -> Weights:
    """All queries, then the one key and the one value."""
    return split(renamed(weights, BLOOM), "fused", lambda w: w.split([DIM, HEAD_DIM, HEAD_DIM]))


def persimmon(weights: Weights) -> Weights:
    """Persimmon."""
    return split(renamed(weights, PERSIMMON | HEAD), "fused", by_head(HEADS))


def gemma(weights: Weights) -> Weights:
    """Gemma's norms multiply with 1 + weight."""
    return {n: 1 + w if "norm" in n else w for n, w in llama(BEFORE)(weights).items()}


def xglm(weights: Weights) -> Weights:
    """XGLM has all sines, then all cosines; ours alternate, so that the stream's features stand in another order."""
    order = torch.arange(DIM).view(2, -1).T.flatten()

    def turned(name: str, weight: Tensor) -> Tensor:
        if name.endswith(("query.bias", "key.bias", "value.bias", "up.bias")):
            return weight
        reads = weight.ndim == 2 and not name.endswith(("out.weight", "down.weight"))
        return weight[:, order] if reads else weight[order]

    return {name: turned(name, weight) for name, weight in renamed(weights, XGLM).items()}


def partial_rope(base: float, share: float) -> dict[str, Any]:
    """How a reference takes a base and a share."""
    return {"rope_parameters": rope(base)["rope_parameters"] | {"partial_rotary_factor": share}}


PLAIN = {"intermediate_size": WIDE}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dim": WIDE}
TWO_HEADS: Any = {"num_attention_heads": 2, "rotary_dim": 4}
# Its slowest pair turns at 1/10000, that of the paper a step earlier.
XGLM_BASE = 10000 ** ((DIM // 2) / (DIM // 2 - 1))

MORE_DECODERS = {
    "qwen2": decoder("qwen2", "Qwen2", llama(BEFORE), **GATED_FFN, num_key_value_heads=2, **rope(1e6)),
    "hunyuan": decoder("hunyuan", "HunYuanDenseV1", hunyuan, **GROUPED),
    "phi": decoder("phi", "Phi", mapped(PHI | HEAD), **PLAIN, **partial_rope(1e4, 0.5)),
    "gptj": decoder("gptj", "GPTJ", gptj, "model.heads=2", **DROPOUT, **TWO_HEADS),
    "falcon": decoder("falcon", "Falcon", falcon),
    "cohere": decoder("cohere", "Cohere", cohere, **GATED_FFN, **rope(8e6)),
    "olmo": decoder("olmo", "Olmo", llama({}), **GATED_FFN),
    "mpt": decoder("mpt", "Mpt", mpt, max_seq_len=CONTEXT),
    "gemma": decoder("gemma", "Gemma", gemma, **GROUPED | {"num_key_value_heads": 1}),
    "persimmon": decoder("persimmon", "Persimmon", persimmon, **PLAIN, **partial_rope(25000.0, 0.5)),
    "xglm": decoder("xglm", "XGLM", xglm, f"position.base={XGLM_BASE}", **NO_DROPOUT),
}
