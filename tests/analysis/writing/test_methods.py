"""The methods paragraph: true of the study, and without a word of what was not done."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_studies import edit_manifest, fabricate, whole
from shown_studies import claim

from ablate.config.citations import papers
from ablate.config.groups import read_groups
from ablate.runs.study import load_study
from analysis.case import Case, case_of
from analysis.writing import methods
from analysis.writing.sections import provenance

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
SETTINGS = {
    "norm": {"_target_": "ablate.model.norm.LayerNorm"},
    "model": {"_target_": "ablate.model.transformer.EncoderDecoder", "heads": 2},
    "optim": {"_target_": "ablate.training.optim.adamw", "betas": [0.9, 0.99], "weight_decay": 0.1, "warmup": 40},
    "schedule": {"_target_": "ablate.training.schedule.Cosine"},
}
Change = Callable[[dict[str, Any]], None]


def case(tmp_path: Path, factors: dict[str, list[Any]] = GRID, change: Change | None = None, **options: Any) -> Case:
    """A fabricated study whose cells have the settings that a sweep would give them."""
    name = fabricate(tmp_path, factors, every=400, **options)

    def written(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"] = whole(SETTINGS)
        if change:
            change(manifest)

    edit_manifest(tmp_path, name, written)
    return case_of(load_study(tmp_path, name), tmp_path)


def paragraph(tmp_path: Path, **options: Any) -> str:
    return methods.markdown(case(tmp_path, **options))


def set_of(key: str, value: Any) -> Change:
    return lambda manifest: manifest.update({key: value})


def in_cells(section: str, key: str, value: Any) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"][section][key] = value

    return change


TUNED = {f"c{i}": {"value": 1e-3, "scores": [2.0, 2.1], "edge": False} for i in range(4)}
TUNING = {"key": "optim.lr", "values": [1e-3, 1e-2], "seeds": 2, "study": "x", "cells": TUNED}
FEATURES: dict[str, tuple[dict[str, Any], str]] = {
    "later seeds": (
        {"looks": [{"seeds": [0, 1], "when": ""}], "seeds": range(5)},
        "Unadjusted: intervals do not allow",
    ),
    "post hoc claims": (
        {"claims": {"late": claim(False, less=[{"ffn": "swiglu"}, {"ffn": "mlp"}])}},
        "makes 1 claim, none of them registered before any seed had results on both sides.",
    ),
    "a confirmation": ({"confirms": "first"}, "which had not been scored in first"),
    "no scores": ({"score": lambda v, s: None if s == 1 else 2.0}, "8 of 12 runs have a result (12 done)."),
    "a tuned rate": (
        {"tuning": TUNING},
        "The learning rate was tuned for each configuration over 1e-3 and 0.01 with 2 seeds each by the validation "
        "split (intervals ignore the noise of tuning).",
    ),
    "a built-in text": (
        {"change": in_cells("data", "_target_", "ablate.data.language.Stdlib")},
        "(the source files of Python's standard library; 10.2 M bytes for training; about 5 % each are held out",
    ),
    "fixed batches": ({"change": in_cells("seed", "data", 7)}, "those of seed 7"),
}


@pytest.mark.parametrize("name", FEATURES)
def test_what_was_done_is_said_and_what_was_not_is_not(name, tmp_path):
    options, sentence = FEATURES[name]
    assert sentence in paragraph(tmp_path, **options)
    assert sentence not in paragraph(tmp_path, study="plain")


def test_a_plain_study_is_described_in_at_most_ten_sentences(tmp_path):
    sentences = methods.methods(case(tmp_path))
    assert len(sentences) <= 10
    text = " ".join(sentences)
    for fact in (
        "4 configurations, with LayerNorm and ReLU MLP as the reference",
        "0.12 M parameters (layers 4, heads 2, width 64, dropout 0)",
        "for 800 steps of 16 examples (0.08 epochs) by AdamW, betas 0.9 and 0.99, weight decay 0.1",
        "The learning rate, which all configurations share and which was not tuned, is 1e-3 at its peak, with a cosine "
        "schedule after 40 steps of linear warm-up, to 0.1 of the peak",
        "trained on byte LM on stdlib-3.11 (10.2 M bytes for training) for 800 steps",
        "test loss (nats per byte) at the last step, over up to 1,024 positions",
        "(Bonferroni-t, 3 effects)",
        "All 12 runs ended with a result.",
    ):
        assert fact in text, fact


def test_runs_of_other_programs_are_not_described(tmp_path):
    def change(manifest: dict[str, Any]) -> None:
        manifest["source"] = "runs.csv"
        manifest["tasks"]["f0"] |= {"train_tokens": None}
        for cell in manifest["cells"]:
            cell |= {"config": None, "shared_draws": None, "notes": []}

    text = paragraph(tmp_path, change=change)
    assert text.startswith("The runs were read from runs.csv; what they share is taken from there. We varied")
    assert "comparisons are paired by seed" in text
    assert not re.search("same batches|learning rate|Transformer|diverged|weights|None|nan", text)


def test_the_machine_and_the_cost_are_those_of_the_runs(tmp_path):
    found = case(tmp_path)
    machine = {"device": "cpu x86_64", "torch": "2.6.0", "seconds": 90.0, "commit": "0123456789abcdef"}
    found = found._replace(study=replace(found.study, runs=found.study.runs.assign(**machine)))
    text = " ".join(methods.methods(found))
    assert "on cpu x86_64 with PyTorch 2.6.0; they took 18 min 00 s in sum." in text
    assert provenance(found)["commit of ablate"] == "0123456789ab"


def test_latex_cites_and_escapes(tmp_path):
    cited = papers([{"norm": "rms", "optim": "adamw"}], read_groups())
    found = case(tmp_path, change=set_of("papers", cited))
    text = methods.latex(found)
    assert r"norm between LayerNorm and RMSNorm~\cite{zhang2019root}; FFN between" in text and "[@" not in text
    assert r"AdamW~\cite{loshchilov2017decoupled}, betas" in text
    assert "norm between LayerNorm and RMSNorm (Zhang & Sennrich 2019); FFN between" in methods.markdown(found)
    assert "\0" not in text and not re.search(r"(?<!\\)[%&#_]", re.sub(r"\\cite\{[^}]*\}", "", text))


def test_variants_over_the_layers_are_named_in_their_order_and_cited(tmp_path):
    node = {"_layers_": ["window", "window", "mha"], "window": {"_target_": "a.Window"}, "mha": {"_target_": "a.MHA"}}

    def patterned(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"]["attention"] = node

    assert "attention Window and MHA (2window+mha)" in paragraph(tmp_path, change=patterned)
    cited = papers([{"attention": name} for name in ("window", "gqa")], read_groups())
    factors = {"attention": ["2window+gqa+...", "gqa"]}
    text = paragraph(tmp_path, factors=factors, change=set_of("papers", cited))
    assert "2 × Sliding window + GQA + … (Ainslie et al. 2023; Beltagy et al. 2020) and GQA (" in text
