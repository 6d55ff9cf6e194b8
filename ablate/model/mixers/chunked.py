"""Linear recurrences over positions, computed in parallel: products within chunks, and states between chunks.

Every exponent is the decay between two positions and thus never positive, so nothing overflows.  Decays are given as
logarithms ≤ 0, in at least float32.  Q, K (B, H, T, D) and V (B, H, T, V) may have one shared head instead of H.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.model.products import as_given

CHUNK = 64  # positions compared pairwise, as in attention
FINE = 16  # the same if features decay separately, where each pair takes as many numbers as there are features


def by_head(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, chunk: int = CHUNK) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = exp(log_decay_t) S_{t−1} + k_t v_tᵀ, log_decay (B, H, T) -> (B, H, T, V).  The form of Dao
    & Gu 2024, arXiv 2405.21060, section 6."""
    length = query.shape[-2]
    query = in_chunks(query, chunk)
    key = in_chunks(key, chunk)
    value = in_chunks(value, chunk)
    decay = in_chunks(log_decay[..., None], chunk)[..., 0].cumsum(-1)  # (B, H, N, L)
    output = (query @ key.transpose(-2, -1) * decays(decay, decay)) @ value
    if decay.shape[-2] > 1:
        last = decay[..., -1]
        written = (key * (last[..., None] - decay).exp()[..., None]).transpose(-2, -1) @ value  # (B, H, N, D, V)
        total = last.cumsum(-1)
        states = decays(total - last, total, -1) @ written.flatten(-2).to(decay.dtype)
        output = output + (query * decay.exp()[..., None]) @ states.unflatten(-1, written.shape[-2:])
    return without_chunks(output, length)


def by_feature(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, chunk: int = FINE) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = diag(exp(log_decay_t)) S_{t−1} + k_t v_tᵀ, log_decay (B, H, T, D) -> (B, H, T, V).  The
    form of Yang 2023, arXiv 2312.06635, section 4."""
    length = query.shape[-2]
    query = in_chunks(query, chunk)
    key = in_chunks(key, chunk)
    value = in_chunks(value, chunk)
    decay = in_chunks(log_decay, chunk).cumsum(-2)  # (B, H, N, L, D)
    by_features = decay.transpose(-2, -1)
    pairs = query[..., :, None, :] * key[..., None, :, :]
    output = (pairs * decays(by_features, by_features).movedim(-3, -1)).sum(-1).to(value.dtype) @ value
    if decay.shape[-3] > 1:
        last = decay[..., -1, :]
        written = (key * (last[..., None, :] - decay).exp()).transpose(-2, -1) @ value  # (B, H, N, D, V)
        total = last.cumsum(-2).transpose(-2, -1)  # (B, H, D, N)
        between = decays(total - last.transpose(-2, -1), total, -1)
        states = between @ written.transpose(-3, -2).to(between.dtype)  # (B, H, D, N, V)
        output = output + (query * decay.exp()) @ states.transpose(-3, -2)
    return without_chunks(output, length)


def by_delta(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, strength: Tensor, chunk: int = CHUNK
) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = exp(log_decay_t) (I − β_t k_t k_tᵀ) S_{t−1} + β_t k_t v_tᵀ -> (B, H, T, V).

    log_decay, strength β (B, H, T).  What a token writes, u_t = β_t (v_t − exp(log_decay_t) S_{t−1}ᵀ k_t), depends on
    what earlier tokens of its chunk write: a triangular system per chunk.  The form of Yang 2024, arXiv 2412.06464,
    section 3.3.
    """
    length = query.shape[-2]
    dtype = log_decay.dtype
    query = in_chunks(query.to(dtype), chunk)
    key = in_chunks(key.to(dtype), chunk)
    value = in_chunks(value.to(dtype), chunk)
    strength = in_chunks(strength[..., None], chunk)
    decay = in_chunks(log_decay[..., None], chunk)[..., 0].cumsum(-1)  # (B, H, N, L), since the chunk's start
    between = decays(decay, decay)  # (B, H, N, L, L), from one position to a later one
    from_start = decay.exp()[..., None]
    with as_given(query):  # rounding errors grow from one solution to the next
        system = strength * (key @ key.transpose(-2, -1) * between).tril(-1)
        right = torch.cat((strength * value, strength * from_start * key), -1)
        solution = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    written, read = solution.split((value.shape[-1], key.shape[-1]), -1)
    scores = query @ key.transpose(-2, -1) * between
    query_of_state = query * from_start
    key_to_end = (key * (decay[..., -1:] - decay).exp()[..., None]).transpose(-2, -1)  # (B, H, N, D, L)
    state = torch.zeros_like(key_to_end[..., 0, :, :1] * value[..., 0, :1, :])
    outputs = []
    for n in range(decay.shape[-2]):
        update = written[..., n, :, :] - read[..., n, :, :] @ state
        outputs.append(scores[..., n, :, :] @ update + query_of_state[..., n, :, :] @ state)
        state = from_start[..., n, -1:, :] * state + key_to_end[..., n, :, :] @ update
    return without_chunks(torch.stack(outputs, -3), length)


def decaying_flops(batch: int, length: int, heads: int, features: int) -> int:
    """FLOPs of the element-wise products of `by_head` and `by_delta`: each score, key and query times a decay."""
    return batch * length * heads * (min(CHUNK, length) + 2 * features)


def in_chunks(x: Tensor, chunk: int) -> Tensor:
    """(B, H, T, D) -> (B, H, N, L, D), L = min(chunk, T), padded by zeros at the end, which write nothing."""
    size = min(chunk, x.shape[-2])
    return F.pad(x, (0, 0, 0, -x.shape[-2] % size)).unflatten(-2, (-1, size))


def without_chunks(x: Tensor, length: int) -> Tensor:
    """(B, H, N, L, V) -> (B, H, T, V)."""
    return x.flatten(-3, -2)[..., :length, :]


def decays(late: Tensor, early: Tensor, diagonal: int = 0) -> Tensor:
    """exp(late_t − early_s) for s ≤ t + diagonal, else 0: two tensors (..., L) -> (..., L, L)."""
    causal = torch.ones(late.shape[-1], early.shape[-1], dtype=torch.bool, device=late.device).tril(diagonal)
    return (late[..., :, None] - early[..., None, :]).masked_fill(~causal, -torch.inf).exp()
