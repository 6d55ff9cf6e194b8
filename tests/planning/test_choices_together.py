"""Patterns over the layers, a choice of its own across stacks, tuning and placebos, all in one command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import test_tuning

from ablate.cli.preview import preview
from ablate.planning.plan import Plan, plan_study
from ablate.results.atomic import write_json

TINY = ("model=encoder_decoder", "model.layers=2", "model.dim=16", "model.heads=2", "data=copy", "train.steps=4")
SWEPT = ("attention=mha,mqa+mha", "cross_attention=same,mha", "+attention.sink=learned")
ROUNDS = ("tune.key=optim.lr", "tune.values=[1e-3,3e-3]", "tune.seeds=1", "placebo_seeds=3", "seeds=3")


def test_patterns_placebos_tuning_and_a_choice_across_stacks_are_carried_out_in_one(tmp_path, monkeypatch):
    def accuracy(file: Path, result: dict[str, Any]) -> None:
        final = {name.replace("loss", "accuracy"): 1 / (1 + abs(value)) for name, value in result["final"].items()}
        write_json(file, result | {"final": final})

    def planned(*words: str) -> Plan:
        return plan_study((*TINY, f"results_dir={tmp_path}", *words))

    shown = preview(planned("dry_run=true", *SWEPT, *ROUNDS))
    assert all(words in shown for words in ("mqa+mha", "4 cells"))

    def score(levels: dict[str, object], lr: float, seed: int) -> float:
        return 2 + abs(lr - (3e-3 if levels.get("attention") == "mqa+mha" else 1e-3)) + seed % 7 / 1000

    monkeypatch.setattr(test_tuning, "write_json", accuracy)
    code, done, _ = test_tuning.rounds(planned, *SWEPT, *ROUNDS, score=score)
    assert code == 0
    manifest = done[-1].manifest
    assert manifest.factors == {"attention": ["mha", "mqa+mha"], "cross_attention": ["same", "mha"]}
    chosen = {cell.levels["attention"]: cell.config.optim.lr for cell in manifest.cells}
    assert chosen == {"mha": 1e-3, "mqa+mha": 3e-3}
    whole = {cell.id: cell.config for plan in done for cell in plan.manifest.cells}
    placebos = [config for config in whole.values() if config.seed.placebo is not None]
    assert {config.seed.placebo for config in placebos} >= {"attention"}
    nodes = [config.attention for config in whole.values() if "_layers_" in config.attention]
    assert nodes and all(node[name]["sink"] == "learned" for node in nodes for name in ("mqa", "mha"))
