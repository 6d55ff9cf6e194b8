"""Mixtures of experts of `transformers`."""

from collections.abc import Iterator
from typing import Any

import torch
from parity.compare import DIM, HEADS, Family, Weights, renamed, table
from parity.decoders import BEFORE, GATED, GROUPED, call, decoder, llama, made, rope
from torch import Tensor, nn

HEAD_DIM, EXPERTS, WIDE = DIM // HEADS, 8, 48  # 48 is 2/3 · 4 · 32 / 2, rounded up to a multiple of 8
BLOCK = {"mlp.gate": "ffn.router", "mlp.router": "ffn.router"}
MLA = {"q_a_proj": "query_down", "q_a_layernorm": "query_norm", "q_b_proj": "query", "kv_a_layernorm": "latent_norm"}
MLA |= {"kv_a_proj_with_mqa": "latent", "kv_b_proj": "key"}
BLOCK |= {f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in MLA.items()}
CORRECTION = 0.3 * torch.randn(EXPERTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def in_layers(weights: Weights) -> Iterator[tuple[str, str, Tensor]]:
    """Our name of each weight's block, its own name, and the weight."""
    for name, weight in weights.items():
        if name.startswith("model.layers."):
            yield f"blocks.{name.split('.')[2]}.", name, weight


def mixture(weights: Weights) -> Weights:
    """A LLaMA with mixtures: experts' gates and what they let through are fused, their matrices (out, in)."""
    found = llama(BEFORE)(weights) | renamed(weights, table("model.", "layers", BLOCK, {}))
    for of, name, weight in in_layers(weights):
        part = name.split(".")[-2].removesuffix("_proj")
        if name.endswith("gate_up_proj"):
            gate, up = weight.mT.chunk(2, -1)
            found |= {f"{of}ffn.experts.gate": gate, f"{of}ffn.experts.up": up}
        elif name.endswith("experts.down_proj"):
            found[f"{of}ffn.experts.down"] = weight.mT
        elif ".shared_expert" in name and part in ("gate", "up", "down"):
            found[f"{of}ffn.shared.{part}"] = weight.mT[None]
    return found


def gpt_oss(weights: Weights) -> Weights:
    """gpt-oss: matrices (in, out), gates and what they let through in turns, a bias of each."""
    found = mixture({name: weight for name, weight in weights.items() if ".experts." not in name})
    for of, name, weight in in_layers(weights):
        kind = "_bias" * name.endswith("_bias")
        parts = {"gate": weight[..., ::2], "up": weight[..., 1::2]} if "gate_up" in name else {"down": weight}
        if ".experts." in name:
            found |= {f"{of}ffn.experts.{part}{kind}": w.flatten() if kind else w for part, w in parts.items()}
        elif name.endswith("sinks"):
            found[f"{of}attention.sink"] = weight
    return found


def deepseek(weights: Weights) -> Weights:
    """DeepSeek-V3, which turns pairs (2i, 2i+1) of the last features, and has two matrices fused."""
    found = mixture(weights) | {"blocks.1.ffn.correction": CORRECTION}
    for of in ("blocks.0.attention.", "blocks.1.attention."):
        latent, turned = found[f"{of}latent.weight"].split((2 * HEAD_DIM, HEAD_DIM // 2))
        both = found[f"{of}key.weight"].unflatten(0, (HEADS, 2, -1))
        plain, of_query = found[f"{of}query.weight"].unflatten(0, (HEADS, -1)).split((HEAD_DIM, HEAD_DIM // 2), 1)
        turned, of_query = (w[..., [0, 2, 1, 3], :] for w in (turned, of_query))
        found |= {f"{of}latent.weight": latent, f"{of}turned_key.weight": turned}
        found |= {f"{of}key.weight": both[:, 0].flatten(0, 1), f"{of}value.weight": both[:, 1].flatten(0, 1)}
        found[f"{of}query.weight"] = torch.cat((plain, of_query), 1).flatten(0, 1)
    return found


def corrected() -> nn.Module:
    """DeepSeek-V3, whose biases for the selection are buffers."""
    model = made("DeepseekV3ForCausalLM", "DeepseekV3Config", **DEEPSEEK)()
    for name, buffer in model.named_buffers():
        if name.endswith("correction_bias"):
            buffer.copy_(CORRECTION)
    return model


EAGER = {"experts_implementation": "eager"}  # the other one multiplies in float32 at most
KEPT: Any = EAGER | {"num_experts_per_tok": 2, "intermediate_size": WIDE, "num_key_value_heads": 2}
DEEPSEEK: Any = (
    EAGER | rope(1e4) | {"intermediate_size": GATED, "moe_intermediate_size": 32, "first_k_dense_replace": 1}
)
DEEPSEEK |= {"n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "q_lora_rank": 32}
DEEPSEEK |= {"kv_lora_rank": 16, "qk_rope_head_dim": 4, "v_head_dim": HEAD_DIM, "qk_nope_head_dim": HEAD_DIM}
DEEPSEEK |= {"num_key_value_heads": HEADS, "n_shared_experts": 1, "head_dim": 4}
OSS: Any = GROUPED | KEPT | rope(150000.0) | {"num_local_experts": EXPERTS, "sliding_window": 5}

MIXTURES = {
    "mixtral": decoder("mixtral", "Mixtral", mixture, **KEPT, **rope(1e6), num_local_experts=EXPERTS),
    "deepseek_v3": Family("deepseek_v3", corrected, call, deepseek),
    "gpt_oss": decoder("gpt_oss", "GptOss", gpt_oss, "attention.window=5", **OSS),
}
