"""A command line travels one way: each stage is entered once, and takes what the one before it made."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ablate.config import command, groups
from ablate.planning import composition, plan

STAGES = {
    command: ("read_groups", "read_study", "parse"),
    groups: ("groups", "experiments", "defaults"),
    plan: ("read_command", "arrange", "compose_cells", "check_cells", "study_of", "next_round"),
    composition: ("Composer",),
}


def test_each_stage_is_entered_once(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entered = Counter[str]()

    def counted(name: str, stage: Any) -> Any:
        def enter(*given: Any, **named: Any) -> Any:
            entered[name] += 1
            return stage(*given, **named)

        return enter

    for module, names in STAGES.items():
        for name in names:
            monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    plan.plan_study([*small, "norm=ln,rms", "study=once"])
    assert entered == {name: 1 for names in STAGES.values() for name in names}
