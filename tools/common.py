"""What tools share: the order of study files."""

from collections.abc import Iterable

# Study files in the order in which they are worth training.
ORDER = ["xiong_warmup", "xiong_gradients", "glu_variants", "batch_norm", "batch_norm_tuned", "rms_norm", "catalogue"]
ORDER += ["alibi_extrapolation", "mqar_width", "mqar_tuned", "qk_norm", "nope_lengths", "catalogue_2"]


def by_value(names: Iterable[str]) -> list[str]:
    """Sort names of study files: those of `ORDER` first, the others alphabetically."""
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
