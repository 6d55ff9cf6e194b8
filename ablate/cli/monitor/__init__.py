"""A study while it is trained, as its files show it."""
