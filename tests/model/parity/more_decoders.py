"""Decoders of `transformers` that need what blocks, heads and positions leave open: biases each, norms without some."""

from collections.abc import Callable
from typing import Any

import torch
from parity.compare import CONTEXT, DIM, HEADS, Family, Weights, renamed, split
from parity.decoders import (
    BEFORE,
    BLOOM,
    DROPOUT,
    GATED_FFN,
    GROUPED,
    LLAMA,
    NEOX_BLOCK,
    WIDE,
    by_head,
    call,
    llama,
    made,
    rope,
)
from torch import Tensor

HEAD_DIM = DIM // HEADS
PHI = {
    "model.embed_tokens": "embed",
    "model.layers.{}.input_layernorm": "blocks.{}.norms.0",
    "model.layers.{}.self_attn.dense": "blocks.{}.attention.out",
    "model.layers.{}.mlp.fc1": "blocks.{}.ffn.up",
    "model.layers.{}.mlp.fc2": "blocks.{}.ffn.down",
    "model.final_layernorm": "final_norm",
    "lm_head": "head",
}
PHI |= {k: v for k, v in LLAMA.items() if "self_attn" in k and v.endswith(("query", "key", "value"))}
GPTJ = {
    "transformer.wte": "embed",
    "transformer.h.{}.ln_1": "blocks.{}.norms.0",
    "transformer.h.{}.attn.q_proj": "blocks.{}.attention.query",
    "transformer.h.{}.attn.k_proj": "blocks.{}.attention.key",
    "transformer.h.{}.attn.v_proj": "blocks.{}.attention.value",
    "transformer.h.{}.attn.out_proj": "blocks.{}.attention.out",
    "transformer.h.{}.mlp.fc_in": "blocks.{}.ffn.up",
    "transformer.h.{}.mlp.fc_out": "blocks.{}.ffn.down",
    "transformer.ln_f": "final_norm",
    "lm_head": "head",
}
MPT = {
    "transformer.wte": "embed",
    "transformer.blocks.{}.norm_1": "blocks.{}.norms.0",
    "transformer.blocks.{}.attn.Wqkv": "blocks.{}.attention.fused",
    "transformer.blocks.{}.attn.out_proj": "blocks.{}.attention.out",
    "transformer.blocks.{}.norm_2": "blocks.{}.norms.1",
    "transformer.blocks.{}.ffn.up_proj": "blocks.{}.ffn.up",
    "transformer.blocks.{}.ffn.down_proj": "blocks.{}.ffn.down",
    "transformer.norm_f": "final_norm",
}
PERSIMMON = {f"model.layers.{{}}.{k}": f"blocks.{{}}.{v}" for k, v in NEOX_BLOCK.items()}
PERSIMMON = {k.replace(".attention.", ".self_attn."): v for k, v in PERSIMMON.items()}
PERSIMMON |= {
    f"model.layers.{{}}.self_attn.{k[0]}_layernorm": f"blocks.{{}}.attention.{k}_norm" for k in ("query", "key")
}
PERSIMMON |= {"model.embed_tokens": "embed", "model.final_layernorm": "final_norm", "lm_head": "head"}
XGLM = {k: v for k, v in LLAMA.items() if "self_attn" in k and not k.endswith(("norm", "o_proj"))}
XGLM |= {
    "model.embed_tokens": "embed",
    "model.layers.{}.self_attn.out_proj": "blocks.{}.attention.out",
    "model.layers.{}.self_attn_layer_norm": "blocks.{}.norms.0",
    "model.layers.{}.fc1": "blocks.{}.ffn.up",
    "model.layers.{}.fc2": "blocks.{}.ffn.down",
    "model.layers.{}.final_layer_norm": "blocks.{}.norms.1",
    "model.layer_norm": "final_norm",
}


def mapped(table: dict[str, str]) -> Callable[[Weights], Weights]:
    """Parameters that only have other names."""
    return lambda weights: renamed(weights, table)


def paired(weights: Weights, turned: int, heads: int) -> Weights:
    """Queries and keys of a reference that turns pairs (2i, 2i+1) of the first features of each head."""
    even, odd = torch.arange(0, turned, 2), torch.arange(1, turned, 2)
    found = {}
    for name, weight in weights.items():
        if name.endswith(("query.weight", "key.weight")):
            rows = weight.unflatten(0, (heads, -1))
            weight = torch.cat((rows[:, even], rows[:, odd], rows[:, turned:]), 1).flatten(0, 1)
        found[name] = weight
    return found


def gptj(weights: Weights) -> Weights:
    """GPT-J, in two heads of 16 features."""
    return paired(renamed(weights, GPTJ), 4, 2)


def cohere(weights: Weights) -> Weights:
    """Command R's logits are scaled, which its last norm's gain can say as well."""
    found = paired(llama({"input_layernorm": 0})(weights), HEAD_DIM, HEADS)
    return found | {"final_norm.weight": found["final_norm.weight"] / 16}


def mpt(weights: Weights) -> Weights:
    """MPT."""
    return split(renamed(weights, MPT), "fused", lambda w: w.chunk(3))


def falcon(weights: Weights) -> Weights:
    """All queries, then the one key and the one value."""
    return split(renamed(weights, BLOOM), "fused", lambda w: w.split([DIM, HEAD_DIM, HEAD_DIM]))


def persimmon(weights: Weights) -> Weights:
    """Persimmon."""
    return split(renamed(weights, PERSIMMON), "fused", by_head(HEADS))


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
XGLM_BASE = 10000 ** (
    (DIM // 2) / (DIM // 2 - 1)
)  # its slowest pair turns at 1/10000, that of the paper a step earlier

MORE_DECODERS = {
    "qwen2": Family(
        "qwen2",
        made("Qwen2ForCausalLM", "Qwen2Config", **GATED_FFN, num_key_value_heads=2, **rope(1e6)),
        call,
        llama(BEFORE),
    ),
    "phi": Family("phi", made("PhiForCausalLM", "PhiConfig", **PLAIN, **partial_rope(1e4, 0.5)), call, mapped(PHI)),
    "gptj": Family(
        "gptj", made("GPTJForCausalLM", "GPTJConfig", **DROPOUT, **TWO_HEADS), call, gptj, overrides=("model.heads=2",)
    ),
    "falcon": Family("falcon", made("FalconForCausalLM", "FalconConfig"), call, falcon),
    "cohere": Family("cohere", made("CohereForCausalLM", "CohereConfig", **GATED_FFN, **rope(8e6)), call, cohere),
    "olmo": Family("olmo", made("OlmoForCausalLM", "OlmoConfig", **GATED_FFN), call, llama({})),
    "mpt": Family("mpt", made("MptForCausalLM", "MptConfig", max_seq_len=CONTEXT), call, mpt),
    "gemma": Family(
        "gemma", made("GemmaForCausalLM", "GemmaConfig", **GROUPED | {"num_key_value_heads": 1}), call, gemma
    ),
    "persimmon": Family(
        "persimmon",
        made("PersimmonForCausalLM", "PersimmonConfig", **PLAIN, **partial_rope(25000.0, 0.5)),
        call,
        persimmon,
    ),
    "xglm": Family(
        "xglm",
        made("XGLMForCausalLM", "XGLMConfig", **NO_DROPOUT),
        call,
        xglm,
        overrides=(f"position.base={XGLM_BASE}",),
    ),
}
