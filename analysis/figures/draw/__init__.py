"""What several kinds of figure draw with: axes, legends, rows, encodings, text that fits."""
