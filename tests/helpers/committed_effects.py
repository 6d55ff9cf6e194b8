"""The effects of all committed studies, as tests/recorded/effects.csv holds them: `make records` writes it."""

import functools

import pandas
from conftest import ROOT

from ablate import evidence
from ablate.runs.kept_tables import read_tables
from ablate.runs.study import Study

FILE = ROOT / "tests" / "recorded" / "effects.csv"
NAMES = ["label", "factor", "level", "reference", "stratum", "metric"]
NUMBERS = ["n", "mean", "sd", "low", "high", "p", "p_bonferroni"]


@functools.cache
def committed_studies() -> dict[str, Study]:
    """The committed studies, by name."""
    folders = sorted((ROOT / "experiments" / "results").iterdir())
    return {folder.name: read_tables(folder) for folder in folders}


def committed_effects() -> pandas.DataFrame:
    """A row per effect of each committed study."""
    tables = []
    for name, study in committed_studies().items():
        effects = evidence.effects(study)
        tables.append(effects[[*NAMES, *NUMBERS, "verdict"]].assign(study=name))
    found = pandas.concat(tables, ignore_index=True)
    return found[["study", *NAMES, *NUMBERS, "verdict"]]


if __name__ == "__main__":
    committed_effects().to_csv(FILE, index=False, float_format="%.12g", lineterminator="\n")
