"""From YAML to objects: what a constructor's parameters accept, and one clear line for all else.

`component`, `CONFIG` and `each_cell` serve the other tests of whole configurations, too.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any, Literal, Optional

import pytest
import torch
from conftest import latest
from empty_task import Blank, some_shape
from omegaconf import DictConfig, OmegaConf

from ablate.config.components import SHAPE, WIRING, argument_problems, bind, fits, offered_names, resolve
from ablate.config.errors import BadComponent
from ablate.config.groups import CONF, PACKAGE
from ablate.config.schema import COMPONENTS, SECTIONS, VARIED, typed
from ablate.data.copying import Copy
from ablate.data.task import build_task
from ablate.model.build import build_model, offered, shape
from ablate.model.shape import ModelShape
from ablate.planning.plan import check_study
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer

VOCAB = 11
# Attributes that the code of models reads.
READ = {n for file in (PACKAGE / "model").rglob("*.py") for n in re.findall(r"\.(\w+)\b(?! =)", file.read_text())}


def component(group: str, variant: str) -> dict[str, Any]:
    """A variant's YAML."""
    return {str(k): v for k, v in OmegaConf.to_container(OmegaConf.load(CONF / group / f"{variant}.yaml")).items()}  # type: ignore[union-attr]


DEFAULTS = [entry for entry in OmegaConf.load(CONF / "config.yaml").defaults if isinstance(entry, DictConfig)]
REFERENCE = {str(group): choice for entry in DEFAULTS for group, choice in entry.items()}
CONFIG: dict[str, Any] = {group: component(group, REFERENCE[group]) for group in VARIED} | {
    "model": component("model", REFERENCE["model"]) | {"layers": 2, "heads": 2, "dim": 16},
    "data": {"context": 12},
}


def cells() -> list[dict[str, Any]]:
    """The reference and every cell that differs from it in one component."""
    found = [CONFIG]
    for group in COMPONENTS:
        names = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
        assert names, f"conf/{group} holds no variant"
        found += [CONFIG | {group: component(group, name)} for name in names if name != REFERENCE[group]]
    own_head = {"model": CONFIG["model"] | {"tie_embeddings": False}}  # a frozen embedding cannot be the head
    return [cell | own_head if cell["embedding"]["frozen"] else cell for cell in found]


def name_of(config: dict[str, Any]) -> str:
    """A cell in a test's name."""
    return "-".join(config[group]["_target_"].rpartition(".")[2] for group in COMPONENTS)


each_cell = pytest.mark.parametrize("config", cells(), ids=name_of)

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


FOREIGN = ["torch.nn.LayerNorm", "builtins.eval", "ablate.training.trainer.Trainer", "ablate.modelling.Norm", "", None]


@pytest.mark.parametrize(
    ("group", "target", "words"),
    [
        *(("norm", target, ["ablate.model", "user="]) for target in FOREIGN),
        ("data", "ablate.model.norm.LayerNorm", ["ablate.data", "user="]),
        *(
            ("norm", f"ablate.model.{target}", [target, "cannot be found"])
            for target in ("norm.LayrNorm", "norm.nn.functional.x")
        ),
        ("init", "ablate.model.init.FIXED", ["not a class or function"]),
    ],
)
def test_a_target_is_a_class_of_the_groups_package(group: str, target: Any, words: list[str]) -> None:
    key, message = problem(group, {"_target_": target})
    assert key == f"{group}._target_" and all(word in message for word in words)
    assert problem("norm", {})[0] == "norm._target_"


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
class Plain(nn.Module): ...
class Unhinted(nn.Module):
    def __init__(self, dim, gain):
        super().__init__()
        self.gain = gain
class Later(nn.Module):
    def __init__(self, dim: int, gain: 'Nowhere'): ...
class Positional(nn.Module):
    def __init__(self, dim: int, *gains: float): ...
def make(dim: int, gain: float = 2.0):
    return Scale(dim, gain)
class Wider(GQA):
    def __init__(self, shape, kv_heads: int | None, bias: bool, scale: float | None, more: int):
        super().__init__(shape, kv_heads, bias, scale)
class Halved(Block):
    final_norm = True
    def __init__(self, shape, sublayers, share: float = 0.5):
        super().__init__(shape, sublayers)
class OldBlock(Block):
    def __init__(self, attention, ffn, norm, dropout: float, cross_attention=None): ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of the user's own, with components good and bad."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    for module, code in {"__init__": "", "parts": OWN, "broken": "class Norm(:\n", "failing": "1 / 0\n"}.items():
        (tmp_path / name / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_components_of_the_users_own(package: str) -> None:
    made = bind("norm", {"_target_": f"{package}.parts.Scale", "gain": 2}, OFFERED, [package])()
    assert (made.dim, made.gain, made.kind) == (16, 2, "a")
    assert bind("norm", {"_target_": f"{package}.parts.make"}, OFFERED, [package])().gain == 2.0
    assert bind("norm", {"_target_": f"{package}.parts.Plain", "_partial_": True}, OFFERED, [package])()
    assert bind("norm", {"_target_": f"{package}.parts.Unhinted", "gain": "any"}, OFFERED, [package])().gain == "any"
    own = {"attention": component("attention", "gqa") | {"_target_": f"{package}.parts.Wider", "more": 1}}
    own |= {"residual": {"_target_": f"{package}.parts.Halved", "share": 0.25}, "user": [package]}
    block = build_model(typed(CONFIG | own), Blank(VOCAB)).blocks[0]  # whose constructors pass the shape on
    assert block.attention.groups == 1 and len(block.norms) == 2


def test_what_a_user_package_may_not_hold(package: str) -> None:
    def refused(target: str, user: tuple[str, ...] = (package,)) -> str:
        key, message = problem("norm", {"_target_": target, "gain": 2.0}, user)
        assert key == "norm._target_"
        return message

    assert refused(f"{package}.parts.Scale", ()), "it must be allowed"
    assert "ablate.model" in refused("os.system") and refused(f"{package}_else.parts.Scale")
    assert "**kwargs" in refused(f"{package}.parts.Greedy")
    assert "broken" in refused(f"{package}.broken.Norm") and "failing" in refused(f"{package}.failing.Norm")
    key, message = problem("residual", {"_target_": f"{package}.parts.OldBlock"}, (package,))
    assert key == "residual._target_" and "OldBlock" in message, "it cannot hand on what its base takes"
    takes = "shape, sublayers"
    assert f"def __init__(self, {takes}, ...)" in message and f"super().__init__({takes}, ...)" in message
    # An annotation that means nothing, as under TYPE_CHECKING, is let through or is a problem in one line.
    node = {"_target_": f"{package}.parts.Later", "gain": 1.0}
    try:
        bind("norm", node, OFFERED, [package])
    except BadComponent as error:
        assert "\n" not in str(error)
    problems = argument_problems("norm", {"_target_": f"{package}.parts.Positional"}, OFFERED, [package])
    assert not [row for row in problems if row[0] == "norm.gains"], "nobody can write *gains in YAML"


# ---- arguments


def test_an_argument_that_is_none_of_the_constructors_or_is_missing() -> None:
    key, message = problem("norm", component("norm", "ln") | {"epss": 1e-5})
    assert key == "norm.epss" and "LayerNorm" in message and "eps" in message and "dim" not in message
    key, message = problem("position", component("position", "none") | {"base": 1.0})
    assert key == "position.base" and "none" in message
    key, message = problem("norm", {"_target_": "ablate.model.norm.BatchNorm", "eps": 1e-5})
    assert key == "norm.momentum" and "BatchNorm" in message
    node = {"_target_": "ablate.model.norm.BatchNorm", "eps": "small", "epss": 1, "dim": 3}
    keys = [key for key, _ in argument_problems("norm", node, OFFERED)]
    assert keys == ["norm.eps", "norm.epss", "norm.dim", "norm.momentum"], "all at once"
    with pytest.raises(BadComponent, match=r"data\.path=") as caught:
        build_task(typed(CONFIG | {"data": component("data", "text") | {"context": 8}}))
    assert caught.value.key == "data.path"


@pytest.mark.parametrize(
    ("group", "variant", "key", "value", "kind"),
    [
        ("norm", "ln", "eps", "small", "float"),
        ("norm", "ln", "eps", {"a": 1}, "float"),
        ("ffn", "swiglu", "multiple_of", 8.0, "int"),
        ("ffn", "mlp", "bias", 1, "bool"),
    ],
)
def test_a_value_of_the_wrong_type(group: str, variant: str, key: str, value: Any, kind: str) -> None:
    where, message = problem(group, component(group, variant) | {key: value})
    assert where == f"{group}.{key}" and repr(value) in message and kind in message


def test_an_option_takes_both_of_its_types_and_a_float_a_whole_number() -> None:
    for value in (None, 100, 1):
        assert bind("ffn", component("ffn", "mlp") | {"hidden": value}, OFFERED)().up.weight.shape == (value or 64, 16)
    assert bind("ffn", component("ffn", "mlp") | {"mult": 2}, OFFERED)().up.weight.shape == (32, 16)


def test_what_the_shape_and_the_wiring_give_cannot_be_overridden() -> None:
    for key in SHAPE:
        where, message = problem("norm", component("norm", "ln") | {key: 8})
        assert where == f"norm.{key}" and "model.*" in message
    for key in WIRING:
        with pytest.raises(BadComponent) as caught:
            build_model(typed(CONFIG | {"residual": CONFIG["residual"] | {key: "x"}}), Blank(VOCAB))
        assert caught.value.key == f"residual.{key}"


def read_names(target: Any) -> set[str]:
    """Names that a class, or a function, reads for more than to store them in an attribute of self."""
    found: set[str] = set()
    for each in inspect.getmro(target) if inspect.isclass(target) else [target]:
        if each.__module__.startswith("ablate."):
            nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each)))))
            values = [node.value for node in nodes if isinstance(node, ast.Assign)]
            stored = {id(one) for value in values for one in getattr(value, "elts", [value])}
            loads = [n for n in nodes if isinstance(getattr(n, "ctx", None), ast.Load) and id(n) not in stored]
            found |= {str(getattr(node, "id", getattr(node, "attr", ""))) for node in loads}
    return found


@pytest.mark.parametrize(("group", "variant"), PARTS)
def test_every_variant_on_disk_binds(group: str, variant: str) -> None:
    offered = dict.fromkeys(offered_names(group)) | OFFERED
    node = component(group, variant)
    assert argument_problems(group, node, offered) == []
    target = resolve(group, node["_target_"])
    written = node.keys() - {"_target_", "_partial_"}
    own = {} if target.__init__ is torch.nn.Module.__init__ else inspect.signature(target).parameters  # type: ignore[misc]
    needed = {name for name, each in own.items() if name in written or each.default is not None}
    assert written == needed - set(offered), (
        "a YAML writes every argument of its constructor that the shape does not give, but for options, which are None"
    )
    assert written <= read_names(target) | READ, "nothing reads it"


class Sub(int):
    """A number of another class."""


def test_which_values_fit_a_type() -> None:
    option = Optional[int]  # noqa: UP045 (as users write it)
    for value, hint in ((1, float), (None, option), ("relu", Literal["relu", "gelu"]), ([0.9, 1], list[float])):
        assert fits(value, hint), (value, hint)
    assert fits([1, "a"], tuple[int, str]) and fits("anything", Any) and fits(Sub(3), int)
    for value, hint in ((1.0, int), (True, float), (None, int), ("tanh", Literal["relu", "gelu"])):
        assert not fits(value, hint), (value, hint)
    for value, hint in (([0.9, "x"], list[float]), ([1, 2], tuple[int, str]), ({"a": "b"}, dict[str, int])):
        assert not fits(value, hint), (value, hint)


# ---- models


def test_a_shape_is_what_the_configuration_says_and_every_key_reaches_the_model() -> None:
    """A setting that nothing reads would make two cells equal without a word."""
    found = shape(typed(CONFIG), Blank(VOCAB, 12))
    sizes = (found.dim, found.heads, found.head_dim, found.layers, found.dropout, found.context)
    assert sizes == (16, 2, 8, 2, 0.0, 12) and tuple(offered(found)) == SHAPE and offered(found)["shape"] is found
    with pytest.raises(ValueError, match=r"model\.dim=16 must be divisible by model\.heads=3"):
        build_model(typed(CONFIG | {"model": CONFIG["model"] | {"heads": 3}}), Blank(VOCAB))
    assert {field.name for field in dataclasses.fields(ModelShape)} <= READ | {"context"}  # which one asks for by name
    deep = build_model(typed(CONFIG | {"model": CONFIG["model"] | {"layers": 3, "dropout": 0.5}}), Blank(VOCAB))
    assert len(deep.blocks) == 3 and deep.dropout.p == deep.blocks[0].attention.dropout.p == 0.5
    assert all(dropout.p == 0.5 for dropout in deep.blocks[0].dropouts)


def noting(section: Any, read: set[str]) -> Any:
    """A section of a configuration that notes which of its keys are read."""

    class Noting(type(section)):  # type: ignore[misc]
        def __getattribute__(self, key: str) -> Any:
            read.add(key)
            return super().__getattribute__(key)

    return Noting(**vars(section))


# What the plan, the launch, and the tests of longer sequences read, before a run or after it.
PLANNED = {"train": {"parallel", "devices", "memory"}, "eval": {"lengths"}}


def test_every_key_of_the_frame_is_read_by_a_run(small: list[str], tmp_path: Path, untried: None) -> None:
    config = check_study(latest(*small, "train.diagnostics=true"), None).cells.checked[0].config
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


def test_an_encoder_ties_where_targets_are_tokens() -> None:
    """Where the model leaves it open; as many classes as tokens are other things."""
    frame = component("model", "encoder") | {"layers": 1, "heads": 2, "dim": 16}

    def tied(requested: bool | None, kind: str, outputs: int | None = None) -> bool:
        config = typed(CONFIG | {"model": frame | {"tie_embeddings": requested}})
        model = build_model(config, Blank(VOCAB, 12, kind, outputs))
        return model.head.weight is model.embed.weight

    assert [tied(requested, "mlm") for requested in (None, True, False)] == [True, True, False]
    for other in (("mlm", 5), ("classification", VOCAB)):
        assert not tied(None, *other) and not tied(False, *other)
        with pytest.raises(ValueError, match=r"model\.tie_embeddings=true needs"):
            tied(True, *other)


def test_the_model_form_decides_what_kind_a_task_is(monkeypatch: pytest.MonkeyPatch) -> None:
    data = component("data", "copy") | {"context": 64}
    monkeypatch.setattr(Copy, "kinds", ("mlm", "lm", "seq2seq"))
    for name, kind in {"decoder": "lm", "encoder": "mlm", "bert": "mlm", "encoder_decoder": "seq2seq"}.items():
        assert build_task(typed({"model": component("model", name), "data": data})).kind == kind
    monkeypatch.setattr(Copy, "kinds", ("seq2seq",))
    with pytest.raises(BadComponent, match=r"Copy is a task from sequence to sequence, and Encoder does") as caught:
        build_task(typed({"model": component("model", "encoder"), "data": data}))
    assert caught.value.key == "data"
