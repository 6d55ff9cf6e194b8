"""Keys, values and commands that are gone, each with what to write instead; one line of a message for each."""

REMOVED: dict[str, str] = {}


def removed(word: str) -> str | None:
    """What to write instead of a key (`hold`), a value (`match=seconds`) or a command (`ablate diff`) that is gone;
    None for any other word."""
    return REMOVED.get(word)
