"""Studies of any program."""
