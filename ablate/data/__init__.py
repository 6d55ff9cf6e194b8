"""Tasks: batches from (seed, step) alone, held-out windows, and yardsticks to read losses by."""
