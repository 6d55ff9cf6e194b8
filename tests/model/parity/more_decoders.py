"""Decoders of `transformers` that need what blocks, heads and positions leave open: biases each, norms without some."""

from typing import Any

import torch
from parity.compare import CONTEXT, DIM, HEADS, Weights, renamed, split, table
from parity.decoders import BEFORE, BLOOM, GATED_FFN, GROUPED, NEOX_BLOCK, WIDE, by_head, decoder, llama, rope

HEAD_DIM = DIM // HEADS
MPT_BLOCK = {"norm_1": "norms.0", "attn.Wqkv": "attention.fused", "attn.out_proj": "attention.out"}
MPT_BLOCK |= {"norm_2": "norms.1", "ffn.up_proj": "ffn.up", "ffn.down_proj": "ffn.down"}
MPT = table("transformer.", "blocks", MPT_BLOCK, {"wte": "embed", "norm_f": "final_norm"})
PERSIMMON_BLOCK = {name.replace("attention.", "self_attn."): ours for name, ours in NEOX_BLOCK.items()}
PERSIMMON_BLOCK |= {f"self_attn.{name[0]}_layernorm": f"attention.{name}_norm" for name in ("query", "key")}
PERSIMMON = table("model.", "layers", PERSIMMON_BLOCK, {"embed_tokens": "embed", "final_layernorm": "final_norm"})
HEAD = {"lm_head": "head"}


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


def cohere(weights: Weights) -> Weights:
    """Command R's logits are scaled, which its last norm's gain can say as well."""
    found = paired(llama({"input_layernorm": 0})(weights), HEAD_DIM, HEAD_DIM)
    return found | {"final_norm.weight": found["final_norm.weight"] / 16}


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


def partial_rope(base: float, share: float) -> dict[str, Any]:
    """How a reference takes a base and a share."""
    return {"rope_parameters": rope(base)["rope_parameters"] | {"partial_rotary_factor": share}}


PLAIN = {"intermediate_size": WIDE}

MORE_DECODERS = {
    "falcon": decoder("falcon", "Falcon", falcon),
    "cohere": decoder("cohere", "Cohere", cohere, **GATED_FFN, **rope(8e6)),
    "olmo": decoder("olmo", "Olmo", llama({}), **GATED_FFN),
    "mpt": decoder("mpt", "Mpt", mpt, max_seq_len=CONTEXT),
    "gemma": decoder("gemma", "Gemma", gemma, **GROUPED | {"num_key_value_heads": 1}),
    "persimmon": decoder("persimmon", "Persimmon", persimmon, **PLAIN, **partial_rope(25000.0, 0.5)),
}
