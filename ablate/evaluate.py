"""Held-out metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 4096  # tokens of one forward pass


@torch.no_grad()
def token_losses(model: nn.Module, held_out: Any, device: torch.device, precision: str) -> np.ndarray:
    """Loss of every target of held-out windows in evaluation mode, in nats, (windows, T); the mode is put back."""
    was_training = model.training
    model.eval()
    losses = []
    try:
        rows = max(1, CHUNK // held_out.targets.shape[-1])
        for start in range(0, len(held_out.targets), rows):
            inputs = {name: tensor[start : start + rows].to(device) for name, tensor in held_out.inputs.items()}
            targets = held_out.targets[start : start + rows]
            with autocast(device, precision):
                logits = model(**inputs)
            loss = F.cross_entropy(logits.float().flatten(0, -2), targets.to(device).flatten(), reduction="none")
            losses.append(loss.view(targets.shape).double().cpu().numpy())
    finally:
        model.train(was_training)
    return np.concatenate(losses)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bf16 autocast where the precision asks for it, else nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def summarise(losses: np.ndarray, split: str, token: str) -> dict[str, float]:
    """Mean loss in nats per token, and bits per byte where tokens are bytes."""
    loss = float(losses.mean())
    return {f"{split}/loss": loss} | ({f"{split}/bpb": loss / math.log(2)} if token == "byte" else {})


def by_document(losses: np.ndarray, documents: np.ndarray, names: list[str]) -> dict[str, list[Any]]:
    """Scored tokens and mean loss of each held-out document that has any."""
    tokens = np.bincount(documents.ravel(), minlength=len(names))
    total = np.bincount(documents.ravel(), weights=losses.ravel(), minlength=len(names))
    scored = np.flatnonzero(tokens)
    return {
        "name": [names[i] for i in scored],
        "tokens": tokens[scored].tolist(),
        "loss": (total[scored] / tokens[scored]).tolist(),
    }
