"""The effects of all committed studies, as tests/recorded/effects.csv holds them: `make records` writes it."""

import functools

import pandas
from conftest import ROOT

from ablate import evidence
from ablate.results.kept_tables import read_tables
from ablate.results.study import Study

FILE = ROOT / "tests" / "recorded" / "effects.csv"
NAMES = ["label", "factor", "level", "reference", "stratum", "metric"]
NUMBERS = ["n", "mean", "sd", "low", "high", "p"]


@functools.cache
def committed_studies() -> dict[str, Study]:
    """The committed studies, by name."""
    folders = sorted((ROOT / "experiments" / "results").iterdir())
    return {folder.name: read_tables(folder) for folder in folders}


def committed_effects() -> pandas.DataFrame:
    """A row per effect of each committed study; `p_corrected` is the p that tables show."""
    tables = []
    for name, study in committed_studies().items():
        effects = evidence.effects(study)
        corrected = effects["p_bonferroni"].fillna(effects["p_bh"])
        table = effects[[*NAMES, *NUMBERS]].assign(p_corrected=corrected, verdict=effects["verdict"])
        tables.append(table.assign(study=name))
    found = pandas.concat(tables, ignore_index=True)
    return found[["study", *NAMES, *NUMBERS, "p_corrected", "verdict"]]


if __name__ == "__main__":
    committed_effects().to_csv(FILE, index=False, float_format="%.12g", lineterminator="\n")
