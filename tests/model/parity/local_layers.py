"""Models of `transformers` some of whose layers have a window or no rotary, and nanochat's."""

from typing import Any

import torch
from parity.compare import DIM, HEADS, Family, Weights, renamed
from parity.decoders import BEFORE, GROUPED, LLAMA, call, decoder, gemma2, llama, made, rope
from parity.more_decoders import cohere

HEAD_DIM, SEEN = DIM // HEADS, 5  # positions that a layer with a window sees, its own among them


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
FOUR: Any = GROUPED | {"num_hidden_layers": 4}
WINDOW = f"attention.window={SEEN}"

GEMMA3_MODEL = made("Gemma3ForCausalLM", "Gemma3TextConfig", **GEMMA3)

LOCAL_LAYERS = {
    "gemma2": decoder("gemma2", "Gemma2", gemma2, WINDOW, **LOCAL),
    "gemma3": Family("gemma3", GEMMA3_MODEL, call, gemma2, overrides=(WINDOW, "model.layers=8")),
    "smollm3": decoder("smollm3", "SmolLM3", llama(BEFORE), "model.layers=4", **FOUR, **rope(2e6)),
    "cohere2": decoder(
        "cohere2", "Cohere2", cohere, WINDOW, "model.layers=4", **FOUR, **rope(1e4), sliding_window=SEEN
    ),
    "nanochat": decoder("nanochat", "NanoChat", nanochat, intermediate_size=4 * DIM),
}
