"""What several kinds of figure draw with: axes, legends, rows, looks, text that fits."""
