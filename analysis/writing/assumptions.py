"""What verdicts take for granted, in sentences for the methods: roughly normal differences, seeds that train."""

from __future__ import annotations

from collections.abc import Iterator

import pandas

from ablate import evidence


def normality(table: pandas.DataFrame) -> Iterator[str]:
    """What the intervals assume, and of which of them it was checked."""
    assumed, checked = table["assumes"].ne(""), table["p_normal"].notna().any()
    if (assumed & table["n"].lt(evidence.CHECKED)).any():
        which = f"Verdicts from fewer than {evidence.CHECKED} seeds" if checked else "Verdicts"
        yield f"{which} assume that differences over seeds are roughly normal, which so few seeds cannot show."
    if checked:
        doubt = (assumed & table["n"].ge(evidence.CHECKED)).any()
        alarms = int((table["verdict"].eq("withheld") & table["p_normal"].lt(evidence.LEVEL)).sum())
        yield (
            "Normality of the differences was checked by Shapiro and Wilk's test at 5 % for each contrast by itself; "
            f"an alarm withholds the verdict ({alarms or 'none'} of {len(table)})"
            + ", and the others of its family assume normality" * bool(doubt)
            + "."
        )


def collapse(table: pandas.DataFrame, claims: pandas.DataFrame) -> Iterator[str]:
    """By what bound equality is said of those seeds only that did not collapse."""
    if any(each["verdict"].str.contains(" among ").any() for each in (table, claims) if len(each)):
        yield (
            "Equality is said of all seeds only where Clopper and Pearson's one-sided bound on the share of seeds that "
            "collapse, times what a collapse costs (from the best cell's score to that of a guess), fits inside the "
            "margin, too; else of those that did not collapse."
        )
