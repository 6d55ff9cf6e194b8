"""Alternatives to attention: mixers with a state of fixed size, whose cost grows linearly with the length."""
