"""Models of `transformers` some of whose layers have a window or no rotary, and nanochat's."""

from typing import Any

import torch
from parity.compare import DIM, HEADS, Family, Weights, renamed, split, table
from parity.decoders import BEFORE, GATED, GROUPED, LLAMA, call, decoder, gemma2, llama, made, rope
from parity.encoders import read
from parity.more_decoders import cohere

HEAD_DIM, SEEN = DIM // HEADS, 5  # positions that a layer with a window sees, its own among them

MODERNBERT_BLOCK = {"attn_norm": "norms.0", "attn.Wqkv": "attention.fused", "attn.Wo": "attention.out"}
MODERNBERT_BLOCK |= {"mlp_norm": "norms.1", "mlp.Wi": "ffn.both", "mlp.Wo": "ffn.down"}
MODERNBERT_TOP = {"embeddings.tok_embeddings": "embed", "embeddings.norm": "embed_norm", "final_norm": "final_norm"}
MODERNBERT = table("model.", "layers", MODERNBERT_BLOCK, MODERNBERT_TOP)
MODERNBERT |= {"head.dense": "head.transform", "head.norm": "head.norm", "decoder": "head"}


def modernbert(weights: Weights) -> Weights:
    """Queries, keys and values are one matrix, and so are an FFN's gate and what it lets through."""
    found = split(renamed(weights, MODERNBERT), "fused", lambda w: w.chunk(3))
    for name in [name for name in found if "both" in name]:
        gate, up = found.pop(name).chunk(2)
        found |= {name.replace("both", "gate"): gate, name.replace("both", "up"): up}
    return found


def nanochat(weights: Weights) -> Weights:
    """nanochat turns the other way: halves of queries and keys that change places turn ours so."""
    found = renamed(weights, LLAMA | {"model.layers.{}.mlp.fc1": "blocks.{}.ffn.up"} | DOWN)
    order = torch.arange(HEAD_DIM).roll(HEAD_DIM // 2)
    for name in [name for name in found if name.endswith(("query.weight", "key.weight"))]:
        found[name] = found[name].unflatten(0, (HEADS, -1))[:, order].flatten(0, 1)
    return found


DOWN = {"model.layers.{}.mlp.fc2": "blocks.{}.ffn.down"}
LOCAL: Any = GROUPED | {"query_pre_attn_scalar": HEAD_DIM, "sliding_window": SEEN}
BASES = {"full_attention": 1e6, "sliding_attention": 1e4}
GEMMA3 = LOCAL | {
    "num_hidden_layers": 8,  # a pattern of six, cut
    "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in BASES.items()},
}
# It counts positions to both sides: four each beside its own.
ENCODER = {
    "num_hidden_layers": 5,  # a pattern of three, cut
    "intermediate_size": GATED,
    "local_attention": 2 * (SEEN - 1),
    "sparse_prediction": False,
}
ENCODER |= dict.fromkeys(("cls_token_id", "sep_token_id"))
FOUR: Any = GROUPED | {"num_hidden_layers": 4}
WINDOW = f"attention.window={SEEN}"

MODERNBERT_MODEL = made("ModernBertForMaskedLM", "ModernBertConfig", **ENCODER)
GEMMA3_MODEL = made("Gemma3ForCausalLM", "Gemma3TextConfig", **GEMMA3)

LOCAL_LAYERS = {
    "gemma2": decoder("gemma2", "Gemma2", gemma2, WINDOW, **LOCAL),
    "gemma3": Family("gemma3", GEMMA3_MODEL, call, gemma2, overrides=(WINDOW, "model.layers=8")),
    "modernbert": Family("modernbert", MODERNBERT_MODEL, read, modernbert, "mlm", overrides=(WINDOW, "model.layers=5")),
    "smollm3": decoder("smollm3", "SmolLM3", llama(BEFORE), "model.layers=4", **FOUR, **rope(2e6)),
    "cohere2": decoder(
        "cohere2", "Cohere2", cohere, WINDOW, "model.layers=4", **FOUR, **rope(1e4), sliding_window=SEEN
    ),
    "nanochat": decoder("nanochat", "NanoChat", nanochat, intermediate_size=4 * DIM),
}
