"""Figures and tables of a study, from results on disk; never loads torch.

study = ablate.load("NAME")
analysis.plot(study, "effects")     # a Matplotlib figure, as `ablate analyse` draws it
analysis.report(study)              # writes everything that `ablate analyse` does; returns the path of report.html
"""

TYPE_CHECKING = False  # nothing is imported here: with `python -m analysis` the current folder is still on the path
if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from ablate.runs.study import Study
    from analysis.case import Case

__all__ = ["plot", "report"]


def plot(study: "Study", figure: str, to: "Path | str | None" = None) -> "Figure":
    """One figure of a study by its kind, with the user's changes in the folder's figures.yaml.  `to` is that folder, by
    default RESULTS/figures/STUDY.  Raises `Refused`, which lists the kinds, for an unknown one."""
    from analysis import figures

    return figures.plot(_case(study, to), figure)


def report(study: "Study", to: "Path | str | None" = None) -> "Path":
    """Write figures, tables and report.html of a study, as `ablate analyse` does; returns the path of the page.  `to`
    is the output folder, by default RESULTS/figures/STUDY.  Raises `Refused`."""
    from analysis.writing.output import write
    from analysis.writing.page import NAME

    case = _case(study, to)
    write(case, case.folder)
    return case.folder / NAME


def _case(study: "Study", to: "Path | str | None") -> "Case":
    import os
    from pathlib import Path

    from analysis.cli import arguments

    results = study.results or Path(os.environ.get("ABLATE_RESULTS", "results"))
    folder = arguments.folder_of(study, results, Path(to) if to else None)
    return arguments.case(study, folder)
