"""What only a GPU can show, in parts: each a function of `Given` that tells figures and expects what must hold."""
