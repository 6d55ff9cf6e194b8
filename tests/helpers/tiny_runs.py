"""Tiny runs of every component, form, task and preset: numbers that no edit may move.

`make records` records them in tests/recorded, with the machine; `tests/test_recorded.py` compares.
"""

import contextlib
import json
import os
import platform
import random
import tempfile
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from composed import composed
from conftest import latest
from reference_config import component

from ablate.config.components import resolve
from ablate.config.groups import groups
from ablate.config.schema import COMPONENTS, Config
from ablate.planning.checks.validate import Validator
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer

RECORDED = Path(__file__).parents[1] / "recorded"
SEED = 1
VALIDATOR = Validator()  # one, which keeps the tasks that it built
TINY = ["model.layers=2", "model.dim=32", "model.heads=4", "train.batch_size=4", "train.steps=3", "train.eval_every=3"]
TINY += ["train.log_every=1", "optim.warmup=1", "eval.tokens=128", "eval.val_share=1", "track=none"]
NARROW: dict[str, dict[str, Any]] = {"window": {"window": 4}}  # the default is wider than these contexts
NARROW |= {"word2vec": {"epochs": 1}, "elmo": {"steps": 2, "rows": 2}}
SOURCES = ["model=encoder_decoder", "data=reverse", "data.length=5"]
FORMS = {
    "encoder": ["model=encoder", "data=mlm"],
    "bert": ["model=bert", "data=mlm"],
    "classifier": ["model=encoder", "data=digits"],
    "encoder_decoder": SOURCES,
}
TASKS = {
    "addition": ["data.length=3"],
    "copy": ["data.length=5"],
    "dates": [],
    "memorisation": ["data.length=8", "data.symbols=16"],
    "mqar": ["data.length=16", "data.pairs=2", "data.symbols=16"],
    "reverse": ["data.length=5"],
    "selective_copy": [],
    "sort": ["data.length=5"],
}
TEXTS = ("data=text", "data=mlm")
PRESETS = dict.fromkeys(["bart", "t5", "t5_v1_1", "transformer"], "seq2seq")  # the others are language models
PRESETS |= dict.fromkeys(["bert", "albert", "electra", "roberta"], "mlm")
SETTINGS = {
    "dropout": ["model.dropout=0.2"],
    "untied": ["model.tie_embeddings=false", "model.scale_embeddings=true"],
    "shared": ["model.share_layers=true", "model.norm_embeddings=true"],
    "linear": ["schedule=linear", "optim.min_lr_ratio=0.1"],
    "constant": ["schedule=constant", "optim.grad_clip=0.1", "optim.weight_decay=0.5"],
    "average": ["train.average=ema"],
    "bf16": ["train.precision=bf16"],
    "diagnostics": ["train.diagnostics=true"],
    "bn with dropout": ["norm=bn", "model.dropout=0.1"],
    "fixed init": ["seed.init=7"],
    "fixed data": ["seed.data=7"],
    "characters": ["data.tokenizer=char"],
}

# A few tiny runs: of each group and form at least one.
SOME = ["reference", "norm=rms", "norm=bn", "ffn=swiglu", "ffn=moe", "residual=rezero", "position=alibi"]
SOME += ["attention=gqa", "attention=mamba2", "attention=mla encoder_decoder", "init=gpt2", "encoder", "bert"]
SOME += ["classifier", "encoder_decoder", "data=copy", "preset=llama", "preset=gemma2", "preset=t5"]
SOME += ["dropout", "linear", "average", "bf16", "diagnostics", "fixed init", "characters"]


def machine() -> dict[str, Any]:
    """What the last digits of a number depend on beside the code."""
    cpu = Path("/proc/cpuinfo").read_text().split("\n\n")[0] if Path("/proc/cpuinfo").exists() else ""
    facts = dict(line.replace("\t", "").split(": ", 1) for line in cpu.splitlines() if ": " in line)
    model = [facts.get(key, "") for key in ("vendor_id", "cpu family", "model", "stepping")]
    return {
        "cpu": " ".join([platform.machine(), *model]),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
    }


def grammar(folder: Path) -> Path:
    """A text to learn, the same on every machine."""
    pick = random.Random(0)
    file = folder / "grammar.txt"
    words = ["the", "a", "red", "blue", "dog", "cat", "sees", "likes", "tree", "house"]
    lines = (" ".join(words[int(pick.random() * len(words))] for _ in range(7)) for _ in range(400))
    file.write_text("\n".join(lines) + "\n")
    return file


def configuration(text: Path, *words: str) -> Config:
    """The resolved configuration of one cell; without words about data it reads a text."""
    has_data = any(word.startswith("data=") for word in words)
    words = words if has_data else ("data=text", *words)
    of_text = [f"data.path={text}", "data.context=16"] if {*TEXTS} & {*words} else []
    return resolved(latest(*TINY, *of_text, *words))


def resolved(words: list[str], **sections: Any) -> Config:
    """A command line's one cell, checked but not counted, with other sections in place of its own."""
    draft = composed(*words)
    config = draft.config
    for name, section in sections.items():
        config = config.with_value(name, section)
    with patch("ablate.planning.checks.validate.once", return_value=SimpleNamespace(hidden=None)):
        [checked], problems = VALIDATOR.validate([replace(draft, config=config)])
    assert not problems
    return checked.config


def configurations(text: Path, names: Collection[str] = ()) -> dict[str, Config]:
    """The configurations of the tiny runs of these names, or of all: variants in two forms, forms, tasks, presets and
    settings."""
    causal = configuration(text)
    crossing = configuration(text, *SOURCES)
    words = {"reference": []} | FORMS | {f"data={task}": [f"data={task}", *more] for task, more in TASKS.items()}
    configs = {name: configuration(text, *given) for name, given in (words | SETTINGS).items() if is_in(name, names)}
    for group in COMPONENTS:
        for variant in sorted(groups()[group]):
            name = f"{group}={variant}"
            chosen = component(group, variant) | NARROW.get(variant, {})
            if is_in(name, names):
                configs[name] = choosing(causal, group, chosen)
            if is_in(f"{name} encoder_decoder", names) and can_cross(group, chosen["_target_"]):
                configs[f"{name} encoder_decoder"] = choosing(crossing, group, chosen)
    data = {"lm": causal.data, "seq2seq": crossing.data, "mlm": configuration(text, *FORMS["bert"]).data}
    for preset in sorted(groups()["preset"]):
        if is_in(f"preset={preset}", names):
            config = resolved([*TINY, f"+preset={preset}"], data=data[PRESETS.get(preset, "lm")])
            configs[f"preset={preset}"] = config
    return configs


def is_in(name: str, names: Collection[str]) -> bool:
    """Whether a name is one of these; of none are all."""
    return not names or name in names


def can_cross(group: str, target: str) -> bool:
    """Whether an encoder-decoder is another test of a variant than a decoder: an FFN sees single positions."""
    variant = resolve(group, target)
    is_of_text = hasattr(variant, "vectors")
    return group != "ffn" and not is_of_text and not getattr(variant, "causal_only", False)


def choosing(config: Config, group: str, chosen: dict[str, Any]) -> Config:
    """A configuration with another variant; a frozen embedding leaves the head its own matrix."""
    tied = config.model.tie_embeddings and not chosen.get("frozen", False)
    return config.with_value(group, chosen).with_value("model.tie_embeddings", tied)


def trained(config: Config, folder: Path) -> dict[str, list[str]]:
    """What a run logs in training and at its end, to the last bit."""
    (folder / "runs" / "a" / "b").mkdir(parents=True)
    with patch("ablate.training.trainer.build_task", VALIDATOR.task):  # a task has no state
        trainer = Trainer(Run(folder, "a/b"), config, SEED)
    unmeasured = SimpleNamespace(metrics={})  # of the validation split, of which nothing is recorded but diagnostics
    quick = patch("ablate.training.trainer.measure", return_value=unmeasured)
    with contextlib.nullcontext() if config.train.diagnostics else quick:
        trainer.train(lambda: False)
    logged: dict[str, list[str]] = {}
    for row in trainer.run.metrics()[0]:
        for key, value in row.items():
            if key in ("train/loss", "grad_norm") or key.startswith(("test/", "diag/")):
                logged.setdefault(key, []).append(float(value).hex())
    return logged


def components(
    folder: Path, dtype: torch.dtype = torch.float32, names: Collection[str] = ()
) -> dict[str, dict[str, list[str]]]:
    """The numbers of the tiny runs of these names, or of every one; equal configurations, as of a group's reference,
    train once."""
    numbers: dict[str, dict[str, list[str]]] = {}
    by_config: dict[str, dict[str, list[str]]] = {}
    for name, config in configurations(grammar(folder), names).items():
        if str(config) not in by_config:
            by_config[str(config)] = trained_as(dtype, config, folder / str(len(by_config)))
        numbers[name] = by_config[str(config)]
    return numbers


def components_float64(folder: Path, names: Collection[str] = ()) -> dict[str, dict[str, list[str]]]:
    """The same in float64, where three steps of the least stable run carry a rounding error to the sixth digit only."""
    return components(folder, torch.float64, names)


def trained_as(dtype: torch.dtype, config: Config, folder: Path) -> dict[str, list[str]]:
    """What a run logs whose parameters have a dtype; those of digits, which are float32 themselves, keep theirs."""
    torch.set_default_dtype(torch.float32 if config.data["_target_"].endswith("Digits") else dtype)
    try:
        return trained(config, folder)
    finally:
        torch.set_default_dtype(torch.float32)


RECORDS: dict[str, Callable[..., dict[str, Any]]] = {"components": components, "components_float64": components_float64}


def main() -> None:
    """Record what comes out now."""
    torch.set_num_threads(1)
    for name, made in RECORDS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ABLATE_CACHE"] = f"{folder}/cache"
            record = {"machine": machine(), "numbers": made(Path(folder))}
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record["numbers"].items()]
        text = f'{{"machine": {json.dumps(record["machine"])},\n "numbers": {{\n' + ",\n".join(lines) + "\n}}\n"
        (RECORDED / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{name}: {len(lines)} recorded")


if __name__ == "__main__":
    main()
