"""Shared drawing code of the figures: axes, legends, rows, encodings, text that fits."""
