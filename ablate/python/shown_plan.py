"""A plan that shows itself: the table of `dry_run=true`."""

from __future__ import annotations

import dataclasses

from ablate.cli.preview import heads, preview, row
from ablate.planning import runs
from ablate.python.html import note, table


class Plan(runs.Plan):
    """A plan as `ablate.plan` returns it: `manifest` has its cells and runs, `todo` those that are to be trained."""

    @classmethod
    def of(cls, plan: runs.Plan) -> Plan:
        """A plan as one that shows itself."""
        return cls(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)})

    def __repr__(self) -> str:
        return preview(self)

    def _repr_html_(self) -> str:
        """The table of cells, and below it what else the command line says."""
        said = preview(self).partition("\n\n")[2].splitlines()
        return table(heads(self), [row(self, cell) for cell in self.manifest.cells]) + note(said)
