"""From YAML to objects: what a constructor's parameters accept, and one clear line for all else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, Literal

import pytest
import torch
from composed import check_study
from conftest import latest
from empty_task import Blank, some_shape
from reference_config import CONFIG, component

from ablate.config.components import argument_problems, bind, fits, offered_names, resolve
from ablate.config.errors import BadComponent
from ablate.config.groups import CONF, PACKAGE
from ablate.config.schema import COMPONENTS, SECTIONS, typed
from ablate.model.build import build_model, offered
from ablate.model.shape import ModelShape
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer

VOCAB = 11
# Attributes that the code of models reads.
READ = {n for file in (PACKAGE / "model").rglob("*.py") for n in re.findall(r"\.(\w+)\b(?! =)", file.read_text())}
OFFERED = offered(some_shape(16)) | {"layer": 0}
PARTS = [(group, file.stem) for group in COMPONENTS for file in sorted((CONF / group).glob("*.yaml"))]


def problem(group: str, node: dict[str, Any], user: tuple[str, ...] = ()) -> tuple[str, str]:
    """The key and the one line of what is wrong with a component."""
    with pytest.raises(BadComponent) as caught:
        bind(group, node, OFFERED, user)
    message = str(caught.value)
    assert message and "\n" not in message
    return caught.value.key, message


# ---- targets


@pytest.mark.parametrize(
    ("group", "target", "part"),
    [
        ("norm", "torch.nn.LayerNorm", "user="),
        ("norm", "ablate.modelling.Norm", "ablate.model"),
        ("norm", None, "ablate.model"),
        ("data", "ablate.model.norm.LayerNorm", "ablate.data"),
        ("norm", "ablate.model.norm.LayrNorm", "norm.LayrNorm' cannot be found"),
        ("init", "ablate.model.init.FIXED", "not a class or function"),
    ],
)
def test_a_target_is_a_class_of_the_groups_package(group, target, part):
    key, message = problem(group, {"_target_": target})
    assert key == f"{group}._target_"
    assert part in message


OWN = """
from torch import nn
from ablate.model.attention import GQA
from ablate.model.residual import Block
class Scale(nn.Module):
    def __init__(self, dim: int, gain: float, kind: str = 'a'):
        super().__init__()
        self.dim, self.gain, self.kind = dim, gain, kind
class Greedy(nn.Module):
    def __init__(self, dim: int, **kwargs): ...
class Later(nn.Module):
    def __init__(self, dim: int, gain: 'Nowhere'): ...
def make(dim: int, gain: float = 2.0):
    return Scale(dim, gain)
class Wider(GQA):
    def __init__(self, shape, kv_heads: int | None, bias: bool, scale: float | None, more: int):
        super().__init__(shape, kv_heads, bias, scale)
class Halved(Block):
    final_norm = True
    def __init__(self, shape, sublayers, share: float = 0.5):
        super().__init__(shape, sublayers)
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> str:
    """A package of the user's own, with components good and bad."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    for module, code in {"__init__": "", "parts": OWN, "broken": "class Norm(:\n", "failing": "1 / 0\n"}.items():
        (tmp_path / name / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_users_class_gets_the_shape_and_its_yamls_arguments(package):
    norm = bind("norm", {"_target_": f"{package}.parts.Scale", "gain": 2}, OFFERED, [package])()
    assert (norm.dim, norm.gain, norm.kind) == (16, 2, "a")


def test_a_component_may_be_a_users_function(package):
    assert bind("norm", {"_target_": f"{package}.parts.make"}, OFFERED, [package])().gain == 2.0


def test_a_users_subclass_passes_the_shape_on(package):
    config = {
        "attention": component("attention", "gqa") | {"_target_": f"{package}.parts.Wider", "more": 1},
        "residual": {"_target_": f"{package}.parts.Halved", "share": 0.25},
        "user": [package],
    }
    block = build_model(typed(CONFIG | config), Blank(VOCAB)).blocks[0]
    assert block.attention.groups == 1
    assert len(block.norms) == 2


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("os.system", "ablate.model"),
        ("PACKAGE_else.parts.Scale", "ablate.model"),
        ("PACKAGE.parts.Greedy", "**kwargs"),
        ("PACKAGE.broken.Norm", "broken"),
        ("PACKAGE.failing.Norm", "failing"),
    ],
)
def test_what_a_user_package_may_not_hold(target, words, package):
    key, message = problem("norm", {"_target_": target.replace("PACKAGE", package), "gain": 2.0}, (package,))
    assert key == "norm._target_"
    assert words in message


def test_an_annotation_that_means_nothing_is_one_line(package):
    key, message = problem("norm", {"_target_": f"{package}.parts.Later", "gain": 1.0}, (package,))
    assert key == "norm._target_"
    assert message.startswith("the annotations of Later cannot be read")


# ---- arguments


def test_all_mistakes_of_a_component_are_reported_at_once():
    node = {"_target_": "ablate.model.norm.BatchNorm", "eps": "small", "epss": 1, "dim": 3}
    assert argument_problems("norm", node, OFFERED) == [
        ("norm.eps", "'small' is not of type float"),
        ("norm.epss", "BatchNorm has no such argument; it has eps, momentum"),
        ("norm.dim", "is set by the model or the data; set model.* or data.* instead"),
        ("norm.momentum", "BatchNorm needs momentum; write it in the YAML"),
    ]


@pytest.mark.parametrize(("hidden", "width"), [(None, 64), (100, 100), (1, 1)])
def test_an_option_takes_both_of_its_types(hidden, width):
    assert bind("ffn", component("ffn", "mlp") | {"hidden": hidden}, OFFERED)().up.weight.shape == (width, 16)


@pytest.mark.parametrize(("group", "variant"), PARTS)
def test_every_variant_on_disk_binds(group, variant):
    offered = dict.fromkeys(offered_names(group)) | OFFERED
    node = component(group, variant)
    assert argument_problems(group, node, offered) == []
    target = resolve(group, node["_target_"])
    written = node.keys() - {"_target_", "_partial_"}
    own = {} if target.__init__ is torch.nn.Module.__init__ else inspect.signature(target).parameters
    needed = {name for name, parameter in own.items() if name in written or parameter.default is not None}
    assert written == needed - set(offered), (
        "a YAML writes every argument of its constructor that the shape does not give, but for options, which are None"
    )


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1.0, int),
        (1, bool),
        ({"a": 1}, float),
        (True, float),
        (None, int),
        ("tanh", Literal["relu", "gelu"]),
        ([0.9, "x"], list[float]),
        ([1, 2], tuple[int, str]),
        ({"a": "b"}, dict[str, int]),
    ],
)
def test_values_that_do_not_fit_a_type(value, hint):
    assert not fits(value, hint)


# ---- models


def test_every_size_of_a_shape_is_read_by_a_model():
    """A setting that nothing reads would make two cells equal without a word."""
    assert {field.name for field in dataclasses.fields(ModelShape)} <= READ | {"context"}  # requested by name


def noting(section: Any, read: set[str]) -> Any:
    """A section of a configuration that notes which of its keys are read."""

    class Noting(type(section)):  # type: ignore[misc]
        def __getattribute__(self, key: str) -> Any:
            read.add(key)
            return super().__getattribute__(key)

    return Noting(**vars(section))


# What the plan, the launch, and the tests of longer sequences read, before a run or after it.
PLANNED = {"train": {"parallel", "devices", "memory"}, "eval": {"lengths"}}


def test_every_key_of_the_frame_is_read_by_a_run(small, tmp_path, untried):
    config = check_study(latest(*small, "train.diagnostics=true"), None).rows[0].config
    read: dict[str, set[str]] = {name: set() for name in ("model", "train", "optim", "eval", "seed")}
    noted = {name: noting(getattr(config, name), keys) for name, keys in read.items()}
    run = Run(tmp_path, "run")
    run.folder.mkdir(parents=True)
    Trainer(run, dataclasses.replace(config, **noted), 0).train(lambda: False)
    # The model's other keys go into its shape: one that no component reads there is read by nothing.
    read["model"] |= READ
    for name, keys in read.items():
        fields = {field.name for field in dataclasses.fields(SECTIONS[name])} - PLANNED.get(name, set())
        assert fields <= keys, f"{name}: {fields - keys} are read by nothing"


def test_an_encoder_ties_where_targets_are_tokens():
    """Where the model leaves it open; as many classes as tokens are other things."""
    frame = component("model", "encoder") | {"layers": 1, "heads": 2, "dim": 16}

    def tied(requested, kind, outputs=None):
        config = typed(CONFIG | {"model": frame | {"tie_embeddings": requested}})
        model = build_model(config, Blank(VOCAB, 12, kind, outputs))
        return model.head.weight is model.embed.weight

    assert [tied(requested, "mlm") for requested in (None, True, False)] == [True, True, False]
    for other in (("mlm", 5), ("classification", VOCAB)):
        assert not tied(None, *other) and not tied(False, *other)
        with pytest.raises(BadComponent, match="true needs targets that are also input tokens") as caught:
            tied(True, *other)
        assert caught.value.key == "model.tie_embeddings"
