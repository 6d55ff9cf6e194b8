"""Models of `transformers` with Mamba-2 in their layers."""

from typing import Any

import torch
from parity.compare import DIM, HEADS, Family, Weights, renamed, table
from parity.decoders import BEFORE, GROUPED, call, llama, made, rope

STATE, VALUES = 64, 2 * DIM
MIXER = {"conv1d": "convolution", "norm": "norm", "out_proj": "out"}

TOP = {"embeddings": "embed", "norm_f": "final_norm", "final_layernorm": "final_norm"}


def mamba(weights: Weights, mixer: str) -> Weights:
    """Mixers, whose projections of the gate, values, keys, queries and steps are one matrix."""
    names = {f"{mixer}.{theirs}": f"attention.{ours}" for theirs, ours in MIXER.items()}
    found = renamed(weights, table("backbone.", "layers", names | {"norm": "norms.0"}, TOP))
    found |= renamed(weights, table("model.", "layers", names | {"pre_ff_layernorm": "norms.1"}, TOP))
    for name, weight in weights.items():
        of, kind = f"blocks.{(name + '...').split('.')[2]}.attention.", name.rpartition(".")[2]
        if name.endswith("in_proj.weight"):
            parts = weight.split((VALUES, VALUES, STATE, STATE, HEADS))
            for part, piece in zip(("gate", "value", "key", "query", "decay.step"), parts, strict=True):
                found[f"{of}{part}.weight"] = piece
        elif "conv1d" in name:  # ours has queries first, values last, and begins with the current token
            value, key, query = weight.split((VALUES, STATE, STATE))
            whole = torch.cat((query, key, value))
            found[f"{of}convolution.{kind}"] = whole if kind == "bias" else whole[:, 0].flip(-1)
        elif kind in OWN:
            found[of + OWN[kind]] = weight
    return found


def bamba(weights: Weights) -> Weights:
    """Bamba, whose FFNs and norms have names of their own."""
    names = {name.replace(".feed_forward.", ".mlp."): weight for name, weight in weights.items()}
    return llama(BEFORE)(names) | mamba(weights, "mamba")


OWN = {"dt_bias": "decay.bias", "A_log": "decay.rate", "D": "skip"}
SIZES: Any = {"num_heads": HEADS, "head_dim": VALUES // HEADS, "state_size": STATE, "n_groups": 1, "chunk_size": 8}
SIZES |= {"tie_word_embeddings": True}
BAMBA: Any = GROUPED | {"mamba_n_heads": HEADS, "mamba_d_state": STATE, "attn_layer_indices": [1]}
BAMBA |= {"rope_parameters": rope(1e4)["rope_parameters"] | {"partial_rotary_factor": 0.5}}
MAMBA_MODEL = made("Mamba2ForCausalLM", "Mamba2Config", **SIZES)
BAMBA_MODEL = made("BambaForCausalLM", "BambaConfig", **BAMBA)

RECURRENT = {
    "mamba2": Family("mamba2", MAMBA_MODEL, call, lambda weights: mamba(weights, "mixer")),
    "bamba": Family("bamba", BAMBA_MODEL, call, bamba),
}
