"""Decoders of `transformers`: how each is built in the tests' sizes, and where its weights are in ours."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from parity.compare import CONTEXT, DIM, HEADS, LAYERS, VOCAB, Family, Weights, renamed, split, table
from torch import Tensor, nn

WIDE, GATED = 4 * DIM, 88  # our FFNs' widths: 88 is 2/3 · 4 · 32, rounded up to a multiple of 8
SHAPE = {"vocab_size": VOCAB, "hidden_size": DIM, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
NO_SPECIAL = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
COMMON = SHAPE | NO_SPECIAL | {"max_position_embeddings": CONTEXT, "attn_implementation": "eager"}
FLOAT32 = torch.float32


def made(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    """How to build a reference."""
    return lambda: built(model, config, **COMMON | settings)


def built(model: str, config: str, **settings: Any) -> Any:
    """A model of `transformers`, which takes seconds to import, and so not where tests are collected."""
    made, described = classes(model, config)
    return made(described(**settings))


def classes(*names: str) -> list[Any]:
    """Classes of `transformers`, imported while torch's types are as they are."""
    with patch.object(torch, "float32", FLOAT32), patch.object(torch, "float", FLOAT32):
        import transformers

        return [getattr(transformers, name) for name in names]


def call(reference: nn.Module, inputs: Weights) -> Tensor:
    """A causal language model's logits."""
    return reference(input_ids=inputs["tokens"], use_cache=False).logits


GPT2_BLOCK = {"ln_1": "norms.0", "attn.c_attn": "attention.fused", "attn.c_proj": "attention.out"}
GPT2_BLOCK |= {"ln_2": "norms.1", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
GPT2 = table("transformer.", "h", GPT2_BLOCK, {"wte": "embed", "wpe": "position.table", "ln_f": "final_norm"})


def gpt2(weights: Weights) -> Weights:
    """GPT-2 stores its matrices transposed."""
    turned = {n: w.T if w.ndim == 2 and ".h." in n else w for n, w in weights.items()}
    return split(renamed(turned, GPT2), "fused", lambda w: w.chunk(3))


def by_head(heads: int) -> Callable[[Tensor], Any]:
    """Rows of a fused projection that stand head by head, in each the query's, the key's and the value's."""
    return lambda w: (piece.flatten(0, 1) for piece in w.unflatten(0, (heads, 3, -1)).unbind(1))


NEOX_BLOCK = {"input_layernorm": "norms.0", "post_attention_layernorm": "norms.1"}
NEOX_BLOCK |= {"attention.query_key_value": "attention.fused", "attention.dense": "attention.out"}
NEOX_BLOCK |= {"mlp.dense_h_to_4h": "ffn.up", "mlp.dense_4h_to_h": "ffn.down"}
NEOX = table("gpt_neox.", "layers", NEOX_BLOCK, {"embed_in": "embed", "final_layer_norm": "final_norm"})
NEOX |= {"lm_head": "head"}
KEPT_APART = {name.replace("attention.", "self_attention."): ours for name, ours in NEOX_BLOCK.items()}
BLOOM = table(
    "transformer.",
    "h",
    KEPT_APART,
    {"word_embeddings": "embed", "word_embeddings_layernorm": "embed_norm", "ln_f": "final_norm"},
)


def fused(names: dict[str, str], heads: int) -> Callable[[Weights], Weights]:
    """GPT-NeoX and BLOOM, in a number of heads."""
    return lambda weights: split(renamed(weights, names), "fused", by_head(heads))


QKV = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
QKV = {f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in QKV.items()}
OUT_PROJ = QKV | {"self_attn.out_proj": "attention.out", "self_attn_layer_norm": "norms.0", "fc1": "ffn.up"}
OUT_PROJ |= {"fc2": "ffn.down", "final_layer_norm": "norms.1"}
OPT_TOP = {"embed_tokens": "embed", "embed_positions": "position.table", "final_layer_norm": "final_norm"}
OPT = table("model.decoder.", "layers", OUT_PROJ, OPT_TOP)


def opt(weights: Weights) -> Weights:
    """OPT's first two positions are never used."""
    found = renamed(weights, OPT)
    return found | {"position.table.weight": found["position.table.weight"][2:]}


LLAMA_BLOCK = QKV | {"self_attn.o_proj": "attention.out"}
LLAMA_BLOCK |= {"self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm"}
LLAMA_BLOCK |= {"mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down"}
LLAMA = table("model.", "layers", LLAMA_BLOCK, {"embed_tokens": "embed", "norm": "final_norm"}) | {"lm_head": "head"}
BEFORE = {"input_layernorm": 0, "post_attention_layernorm": 1}
AFTER = {"post_attention_layernorm": 0, "post_feedforward_layernorm": 1}
AROUND = BEFORE | {"pre_feedforward_layernorm": 2, "post_feedforward_layernorm": 3}


def llama(norms: dict[str, int]) -> Callable[[Weights], Weights]:
    """LLaMA and its kin, by where their blocks' norms stand."""
    names = LLAMA | {f"model.layers.{{}}.{name}": f"blocks.{{}}.norms.{i}" for name, i in norms.items()}
    return lambda weights: renamed(weights, names)


def gemma2(weights: Weights) -> Weights:
    """Gemma's norms multiply with 1 + weight."""
    return {n: 1 + w if "norm" in n else w for n, w in llama(AROUND)(weights).items()}


def rope(base: float) -> dict[str, Any]:
    """How a reference takes a base."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base}}


GATED_FFN = {"intermediate_size": GATED}
GROUPED = GATED_FFN | {"num_key_value_heads": 2, "head_dim": DIM // HEADS}
DROPOUT = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
# `eager` casts the softmax to float32 in OPT; scaled_dot_product_attention does not.
EXACT = {"attn_implementation": "sdpa", "ffn_dim": WIDE, "dropout": 0.0}


def decoder(preset: str, kind: str, weights: Callable[[Weights], Weights], *overrides: str, **settings: Any) -> Family:
    """A decoder of `transformers`, by the name that its model and its configuration begin with."""
    reference = made(f"{kind}ForCausalLM", f"{kind}Config", **settings)
    return Family(preset, reference, call, weights, overrides=overrides)


NEOX_SIZES = {"intermediate_size": WIDE, "num_attention_heads": 2}  # heads of 16, so that two angles are turned by
MISTRAL_SIZES: Any = GROUPED | {"rms_norm_eps": 1e-5, "sliding_window": 5}

# Of some, norms, angles and softmax are in float32: see `exactly`.
DECODERS = {
    "gpt2": Family("gpt2", made("GPT2LMHeadModel", "GPT2Config", **DROPOUT), call, gpt2),
    "opt": decoder("opt", "OPT", opt, **EXACT),
    "gpt_neox": decoder("gpt_neox", "GPTNeoX", fused(NEOX, 2), "model.heads=2", **NEOX_SIZES),
    "bloom": decoder("bloom", "Bloom", fused(BLOOM, HEADS), n_head=HEADS),
    "llama": decoder("llama", "Llama", llama(BEFORE), **GATED_FFN),
    "mistral": decoder("mistral", "Mistral", llama(BEFORE), "attention.window=5", **MISTRAL_SIZES),
    "qwen3": decoder("qwen3", "Qwen3", llama(BEFORE), **GROUPED, **rope(1e6)),
    "olmo2": decoder("olmo2", "Olmo2", llama(AFTER), **GATED_FFN, **rope(5e5), rms_norm_eps=1e-6),
}
