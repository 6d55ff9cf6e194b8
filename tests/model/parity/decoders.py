"""Decoders of `transformers`: how each is built in the tests' sizes, and where its weights are in ours."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from parity.compare import CONTEXT, DIM, HEADS, LAYERS, VOCAB, Family, Weights, renamed, split
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


GPT2 = {
    "transformer.wte": "embed",
    "transformer.wpe": "position.table",
    "transformer.h.{}.ln_1": "blocks.{}.norms.0",
    "transformer.h.{}.attn.c_attn": "blocks.{}.attention.fused",
    "transformer.h.{}.attn.c_proj": "blocks.{}.attention.out",
    "transformer.h.{}.ln_2": "blocks.{}.norms.1",
    "transformer.h.{}.mlp.c_fc": "blocks.{}.ffn.up",
    "transformer.h.{}.mlp.c_proj": "blocks.{}.ffn.down",
    "transformer.ln_f": "final_norm",
}


def gpt2(weights: Weights) -> Weights:
    """GPT-2 stores its matrices transposed."""
    turned = {n: w.T if w.ndim == 2 and ".h." in n else w for n, w in weights.items()}
    return split(renamed(turned, GPT2), "fused", lambda w: w.chunk(3))


def by_head(heads: int) -> Callable[[Tensor], Any]:
    """Rows of a fused projection that stand head by head, in each the query's, the key's and the value's."""
    return lambda w: (piece.flatten(0, 1) for piece in w.unflatten(0, (heads, 3, -1)).unbind(1))


NEOX_BLOCK = {
    "input_layernorm": "norms.0",
    "post_attention_layernorm": "norms.1",
    "attention.query_key_value": "attention.fused",
    "attention.dense": "attention.out",
    "mlp.dense_h_to_4h": "ffn.up",
    "mlp.dense_4h_to_h": "ffn.down",
}
NEOX = {f"gpt_neox.layers.{{}}.{theirs}": f"blocks.{{}}.{ours}" for theirs, ours in NEOX_BLOCK.items()}
NEOX |= {"gpt_neox.embed_in": "embed", "gpt_neox.final_layer_norm": "final_norm", "lm_head": "head"}
BLOOM = {
    f"transformer.h.{{}}.{k}".replace("h.{}.att", "h.{}.self_att"): f"blocks.{{}}.{v}" for k, v in NEOX_BLOCK.items()
}
BLOOM |= {
    "transformer.word_embeddings": "embed",
    "transformer.word_embeddings_layernorm": "embed_norm",
    "transformer.ln_f": "final_norm",
}


def fused(table: dict[str, str], heads: int) -> Callable[[Weights], Weights]:
    """GPT-NeoX and BLOOM, in a number of heads."""
    return lambda weights: split(renamed(weights, table), "fused", by_head(heads))


OPT = {
    "model.decoder.embed_tokens": "embed",
    "model.decoder.embed_positions": "position.table",
    "model.decoder.final_layer_norm": "final_norm",
    "model.decoder.layers.{}.self_attn.q_proj": "blocks.{}.attention.query",
    "model.decoder.layers.{}.self_attn.k_proj": "blocks.{}.attention.key",
    "model.decoder.layers.{}.self_attn.v_proj": "blocks.{}.attention.value",
    "model.decoder.layers.{}.self_attn.out_proj": "blocks.{}.attention.out",
    "model.decoder.layers.{}.self_attn_layer_norm": "blocks.{}.norms.0",
    "model.decoder.layers.{}.fc1": "blocks.{}.ffn.up",
    "model.decoder.layers.{}.fc2": "blocks.{}.ffn.down",
    "model.decoder.layers.{}.final_layer_norm": "blocks.{}.norms.1",
}


def opt(weights: Weights) -> Weights:
    """OPT's first two positions are never used."""
    found = renamed(weights, OPT)
    return found | {"position.table.weight": found["position.table.weight"][2:]}


LLAMA = {
    "model.embed_tokens": "embed",
    "model.layers.{}.self_attn.q_proj": "blocks.{}.attention.query",
    "model.layers.{}.self_attn.k_proj": "blocks.{}.attention.key",
    "model.layers.{}.self_attn.v_proj": "blocks.{}.attention.value",
    "model.layers.{}.self_attn.o_proj": "blocks.{}.attention.out",
    "model.layers.{}.self_attn.q_norm": "blocks.{}.attention.query_norm",
    "model.layers.{}.self_attn.k_norm": "blocks.{}.attention.key_norm",
    "model.layers.{}.mlp.gate_proj": "blocks.{}.ffn.gate",
    "model.layers.{}.mlp.up_proj": "blocks.{}.ffn.up",
    "model.layers.{}.mlp.down_proj": "blocks.{}.ffn.down",
    "model.norm": "final_norm",
    "lm_head": "head",
}
BEFORE = {"input_layernorm": 0, "post_attention_layernorm": 1}
AFTER = {"post_attention_layernorm": 0, "post_feedforward_layernorm": 1}
AROUND = BEFORE | {"pre_feedforward_layernorm": 2, "post_feedforward_layernorm": 3}


def llama(norms: dict[str, int]) -> Callable[[Weights], Weights]:
    """LLaMA and its kin, by where their blocks' norms stand."""
    table = LLAMA | {f"model.layers.{{}}.{name}": f"blocks.{{}}.norms.{i}" for name, i in norms.items()}
    return lambda weights: renamed(weights, table)


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
LLAMA_KIND: Any = (made("LlamaForCausalLM", "LlamaConfig", **GATED_FFN), call, llama(BEFORE))
SIX = {"num_attention_heads": 6, "n_head": 6, "hidden_size": 48}

DECODERS = {
    "gpt2": Family("gpt2", made("GPT2LMHeadModel", "GPT2Config", **DROPOUT), call, gpt2),
    "opt": Family("opt", made("OPTForCausalLM", "OPTConfig", **EXACT), call, opt),
    "gpt_neox": Family(  # angles and softmax in float32; two heads of 16, so that two angles are turned by
        "gpt_neox",
        made("GPTNeoXForCausalLM", "GPTNeoXConfig", intermediate_size=WIDE, num_attention_heads=2),
        call,
        fused(NEOX, 2),
        overrides=("model.heads=2",),
    ),
    "bloom": Family(  # softmax in float32
        "bloom", made("BloomForCausalLM", "BloomConfig", n_head=HEADS), call, fused(BLOOM, HEADS)
    ),
    "bloom with six heads": Family(  # no power of two: ALiBi's other slopes
        "bloom",
        made("BloomForCausalLM", "BloomConfig", **SIX),
        call,
        fused(BLOOM, 6),
        overrides=("model.heads=6", "model.dim=48"),
    ),
    # The rest: norms, angles and softmax in float32.
    "llama": Family("llama", *LLAMA_KIND),
    "mistral": Family(
        "mistral",
        made("MistralForCausalLM", "MistralConfig", **GROUPED, rms_norm_eps=1e-5, sliding_window=5),
        *LLAMA_KIND[1:],
        overrides=("attention.window=5",),
    ),
    "qwen3": Family("qwen3", made("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, **rope(1e6)), *LLAMA_KIND[1:]),
    "olmo2": Family(
        "olmo2",
        made("Olmo2ForCausalLM", "Olmo2Config", **GATED_FFN, **rope(5e5), rms_norm_eps=1e-6),
        call,
        llama(AFTER),
    ),
}
