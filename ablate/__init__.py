"""Ablation studies for Transformers: paired seeds, counted budgets, and a verdict with an interval."""

from ablate.training.load import load

__all__ = ["load"]
__version__ = "0.1.0"
