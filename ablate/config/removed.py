"""Keys, values and commands that are gone, each with what to write instead; one line of a message for each."""

REMOVED: dict[str, str] = {
    "--wandb FOLDER": "offline runs are no longer read; upload them by `wandb sync`, then write ENTITY/PROJECT",
    "design=fractional": "fractional is no longer a design; write grid or one_at_a_time",
    "reuse=any": "any is no longer a choice; leave it out: runs of other code are trained again",
    "figure: looks": "is no longer a figure; leave it out",
    "figure: main_effects": "is no longer a figure; write effects",
    "figure: proxy": "is no longer a figure; write claims",
    "match=seconds": "seconds is no longer a choice; write match=flops_total",
    "reference": "is no longer a key; write the level to compare with first, as in norm=rms,ln",
    "placebo_seeds": "is no longer a key; leave it out: seeds=8, say, shows the noise of every effect",
    "seed.placebo": "is no longer a key; write seed.init=0 or seed.data=0 to fix a part of the randomness",
    "tune.per_seed": "is no longer a key; leave it out, and write tune.seeds=4, say, for a surer choice",
}


def removed(word: str) -> str | None:
    """What to write instead of a word that is gone; None for any other word.  Words are a key (`hold`), a value
    (`match=seconds`), a command (`ablate diff`), an option, or a figure of a study file (`figure: proxy`)."""
    return REMOVED.get(word)
