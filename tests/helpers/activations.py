"""Activation functions in plain Python numbers."""

import math


def relu(a: float) -> float:
    return max(a, 0.0)


def gelu(a: float) -> float:
    return a * 0.5 * (1 + math.erf(a / math.sqrt(2)))


def silu(a: float) -> float:
    return a / (1 + math.exp(-a))
