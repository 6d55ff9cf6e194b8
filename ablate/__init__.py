"""Ablation studies for Transformers: paired seeds, counted budgets, and a verdict with an interval."""

__version__ = "0.1.0"
