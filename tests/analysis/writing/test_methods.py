"""The methods paragraph: true of the study, and without a word of what was not done."""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_studies import edit_manifest, fabricate, whole

from ablate.config.citations import papers
from ablate.config.groups import read_groups
from ablate.config.ladder import levels_of_rungs
from ablate.runs.study import load_study
from ablate.training.divergence import DIVERGED
from analysis.case import Case, case_of
from analysis.writing import methods

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
FULL = {
    "norm": {"_target_": "ablate.model.norm.LayerNorm"},
    "model": {"_target_": "ablate.model.transformer.EncoderDecoder", "layers": 4, "heads": 2, "dim": 64,
              "dropout": 0.1},
    "train": {"steps": 800, "batch_size": 16, "precision": "fp32", "average": "ema"},
    "optim": {"_target_": "ablate.training.optim.adamw", "lr": 1e-3, "betas": [0.9, 0.99], "weight_decay": 0.1,
              "grad_clip": 1.0, "warmup": 40, "min_lr_ratio": 0.1},
    "schedule": {"_target_": "ablate.training.schedule.Cosine"},
    "eval": {"tokens": 16384, "lengths": []},
}  # fmt: skip
Change = Callable[[dict[str, Any]], None]


def case(tmp_path: Path, factors: dict[str, list[Any]] = GRID, change: Change | None = None, **options: Any) -> Case:
    """A fabricated study whose cells have the settings that a sweep would give them."""
    name = fabricate(tmp_path, factors, every=400, **options)

    def written(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"] = whole(FULL)
        if change:
            change(manifest)

    edit_manifest(tmp_path, name, written)
    return case_of(load_study(tmp_path, name), tmp_path)


def said(tmp_path: Path, **options: Any) -> str:
    return methods.markdown(case(tmp_path, **options))


def tuned(manifest: dict[str, Any]) -> None:
    cells = {cell["id"]: {"value": 0.001, "edge": i == 0, "scores": [2, 3]} for i, cell in enumerate(manifest["cells"])}
    manifest["tuning"] = {"key": "optim.lr", "values": [0.001, 0.003], "seeds": 2, "study": "x-tune", "cells": cells}


def matched(manifest: dict[str, Any]) -> None:
    manifest["match"] = "params"
    for cell in manifest["cells"]:
        cell["config"]["ffn"] = {"hidden": 128}
        cell["matched"] = {"quantity": "parameters without embedding and head", "value": 1004, "reference": 1000,
                           "difference": 0.004}  # fmt: skip


def set_of(key: str, value: Any) -> Change:
    return lambda manifest: manifest.update({key: value})


def two_schedules(manifest: dict[str, Any]) -> None:
    manifest["cells"][0]["config"]["schedule"] = {"_target_": "ablate.training.schedule.Linear"}


def in_cells(section: str, key: str, value: Any) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"][section][key] = value

    return change


def climbing(manifest: dict[str, Any]) -> None:
    for cell in manifest["cells"]:
        cell["flops_per_token"] = 4 ** int(str(cell["levels"]["rung"])[0])


CLAIM = {"claim": {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}, "written": "", "registered": True, "earlier": []}
FEATURES: list[tuple[str, dict[str, Any], str]] = [
    ("tuning", {"change": tuned}, r"The learning rate was tuned .* over 1e-3 and 3e-3 with 2 seeds"),
    ("matching", {"change": matched}, r"FFN widths were chosen so that parameters .* within 0\.4 % of the reference's"),
    ("later seeds", {"looks": [{"seeds": [0, 1], "when": ""}], "seeds": range(5)}, r"Unadjusted: seeds were added"),
    ("post hoc claims", {"change": set_of("claims", {"a": CLAIM | {"registered": False}})}, r"of which none were reg"),
    ("a confirmation", {"confirms": "first"}, r"had not been scored in first, which this study confirms"),
    ("failures", {"status": lambda v, s: "failed" if s == 1 else "done"}, r"Of 12 runs, 4 failed; none of them is"),
    ("no scores", {"score": lambda v, s: None if s == 1 else 2.0}, r"Of 12 runs, 4 done without the metric; none"),
    ("withheld", {"status": lambda v, s: "diverged" if v["ffn"] == "swiglu" and s else "done", "seeds": range(4)},
     r"there is no verdict"),
    ("averaging", {}, r"an average of the weights \(ema\)"),
    ("dropout", {}, r"dropout 0\.1"),
    ("two schedules", {"change": two_schedules}, r"clipped at norm 1\. (?!The learning rate rises)"),
    ("one design", {"design": "cumulative"}, r"differences of each step from the one before it"),
    ("a ladder", {"design": "ladder", "factors": {"ffn": ["mlp", "swiglu"], "rung": levels_of_rungs(4)},
                  "change": climbing, "seeds": range(3)},
     r"one at a time on each of 4 rungs, .* 5 worths and trends"),
]  # fmt: skip
PLAIN = {"change": lambda manifest: [in_cells("train", "average", "none")(manifest),
                                     in_cells("model", "dropout", 0.0)(manifest)]}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The paragraph of a study without any of this."""
    return said(tmp_path_factory.mktemp("plain"), **PLAIN)


@pytest.mark.parametrize(("name", "options", "sentence"), FEATURES, ids=[name for name, _, _ in FEATURES])
def test_what_was_done_is_said_and_what_was_not_is_not(tmp_path, plain, name, options, sentence):
    assert re.search(sentence, said(tmp_path, **options)), methods.markdown(case(tmp_path, study="again", **options))
    assert not re.search(sentence, plain)


def test_a_plain_study_is_described_whole(tmp_path: Path) -> None:
    text = said(tmp_path, **PLAIN)
    for sentence in (
        "LayerNorm and RMSNorm as norm, and ReLU MLP and SwiGLU as FFN, in all combinations: 4 configurations.",
        "The reference is LayerNorm, ReLU MLP.",
        "The models are encoder-decoder Transformers of 4 layers, 2 heads and width 64, with 0.12 M parameters.",
        "The task is byte LM on stdlib-3.11 (fingerprint f0).",
        "A run takes 800 steps of 16 examples (1,024 positions a step, 0.08 epochs) in fp32.",
        "The optimiser is adamw, betas 0.9 and 0.99, weight decay 0.1, gradients clipped at norm 1.",
        "The learning rate rises linearly over 40 steps to 1e-3 and falls by a cosine to 0.1 of that.",
        "The learning rate was not tuned",
        "trained with 3 seeds (0, 1, 2).",
        "see the same batches in the same order, so that seeds pair.",
        "The metric is test loss (nats per byte) at the last step, over up to 16,384 positions of held-out data.",
        "Effects are main effects and two-way interactions, computed within each seed.",
        "(Bonferroni, 3 effects)",
        "All other comparisons are estimates only",
        "All 12 runs ended with a number.",
    ):
        assert sentence in text
    assert "  " not in text and ".." not in text and not re.search(r"[a-z]\. [a-z]", text.replace("stdlib-3.", ""))


def test_the_rule_of_divergence_is_the_trainers(tmp_path: Path) -> None:
    assert f"more than {100 * (DIVERGED - 1):.0f} % above its value at the first step" in said(tmp_path)


def test_what_seeds_do_not_change_is_not_said_to_follow_them(tmp_path: Path) -> None:
    parts = ("keyed by seed and parameter name", "those of seed 0 in every run", "those of seed 7, so that")
    for key, value, told in (("init", None, [0]), ("init", 0, [1]), ("data", 7, [0, 2])):
        text = said(tmp_path, study=f"{key}-{value}", change=in_cells("seed", key, value))
        assert [i for i, part in enumerate(parts) if part in text] == told, text


def test_a_rate_that_never_rose_to_its_peak_does_not_fall(tmp_path: Path) -> None:
    text = said(tmp_path, change=in_cells("optim", "warmup", 800))
    assert "rises linearly towards 1e-3, which it would reach after 800 steps." in text and "falls" not in text


def test_one_run_is_one_and_code_of_the_users_is_named(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        in_cells("norm", "_target_", "my_package.norms.MaxNorm")(manifest)
        in_cells("optim", "_target_", "torch.optim.NAdam")(manifest)  # whose version is recorded

    found = case(tmp_path, factors={}, seeds=[0], change=change)
    assert "The one run ended with a number." in methods.markdown(found)
    runs = found.study.runs.assign(device="cpu", torch="2.13", commit="0123456789abcdef", dirty=False)
    text = " ".join(methods.methods(found._replace(study=dataclasses.replace(found.study, runs=runs))))
    assert "commit 0123456789ab, beside my_package, whose version is not recorded." in text


def test_runs_of_other_programs_are_not_described(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["source"], manifest["tasks"]["f0"] = "runs.csv", manifest["tasks"]["f0"] | {"train_tokens": None}
        for cell in manifest["cells"]:
            cell |= {"config": None, "shared_draws": None, "notes": []}

    text = said(tmp_path, change=change)
    assert text.startswith("The runs were read from runs.csv; what they share is taken from there. We compared")
    assert "Comparisons are paired by seed." in text and "same batches" not in text
    assert not re.search("optimiser|learning rate|Transformer|fingerprint|diverged|draws|None|nan", text)


def test_the_machine_and_the_cost_are_those_of_the_runs(tmp_path: Path) -> None:
    found = case(tmp_path)
    count = len(found.study.runs)
    runs = found.study.runs.assign(
        device="cpu x86_64", torch="2.6.0", commit="f75e98ff2e4d0a64", dirty=False, seconds=90.0
    )
    runs = runs.assign(dirty=[True] + [False] * (count - 1))
    text = " ".join(methods.methods(found._replace(study=replace(found.study, runs=runs))))
    assert "on cpu x86_64 with PyTorch 2.6.0 and Python 3.11.4." in text
    assert "The code is that of commit f75e98ff2e4d with changes that were not committed." in text
    flops = count * 250_000 * 1024 * 800
    assert f"took 18 min 00 s in sum over runs, {flops:.1e} forward".replace("e+", "e") in text


def test_latex_cites_and_escapes(tmp_path: Path) -> None:
    found = case(tmp_path, change=set_of("papers", papers([{"norm": "rms", "optim": "adamw"}], read_groups())))
    text = methods.latex(found)
    assert r"LayerNorm and RMSNorm~\cite{zhang2019root} as norm" in text and "[@" not in text
    assert r"adamw~\cite{loshchilov2017decoupled}, betas" in text and r"0.08 epochs" in text
    assert "RMSNorm (Zhang & Sennrich 2019) as norm" in methods.markdown(found)
    assert "\0" not in text and not re.search(r"(?<!\\)[%&#_]", re.sub(r"\\cite\{[^}]*\}", "", text))


@pytest.mark.parametrize("factors", [GRID, {}], ids=["compared", "one"])
def test_remarks_keep_the_keys_that_they_are_about(factors: dict[str, list[Any]], tmp_path: Path) -> None:
    remarks = ["norm=none is without eps, which gemma2 sets", "attention.window reaches window, not mha"]
    text = said(tmp_path, factors=factors, change=set_of("remarks", [*remarks, "base is ffn=mlp"]))
    assert f"Note: {remarks[0]}. Note: {remarks[1]}. Base is ffn=mlp. " in text


def test_variants_over_the_layers_are_named_in_their_order_and_cited(tmp_path: Path) -> None:
    node = {"_layers_": ["window", "window", "mha"], "window": {"_target_": "a.Window"}, "mha": {"_target_": "a.MHA"}}

    def patterned(manifest: dict[str, Any]) -> None:
        for cell in manifest["cells"]:
            cell["config"]["attention"] = node

    assert "attention Window and MHA (2window+mha)" in said(tmp_path, change=patterned)
    choices = [{"attention": name} for name in ("window", "gqa")]
    factors = {"attention": ["2window+gqa+...", "gqa"]}
    text = said(tmp_path, factors=factors, change=set_of("papers", papers(choices, read_groups())))
    assert (
        "2 × Sliding window + GQA + … (Ainslie et al. 2023; Beltagy et al. 2020) and GQA (Ainslie et al. 2023)" in text
    )
