"""A run's key follows the code that its cell uses, and nothing else.  Sources are edited in memory."""

import ast
import functools
from typing import Any

import pytest
import yaml
from reference_config import CONFIG, component

from ablate.config.components import resolve
from ablate.config.groups import groups
from ablate.config.schema import VARIED, typed
from ablate.config.targets import CHOSEN
from ablate.data.sequence import Synthetic
from ablate.model.norm import RunningNorm
from ablate.runs.code_digest import LOOP, NEUTRAL, SOURCES, Sources, code_of
from ablate.runs.key import code_parts

PARTS = (*VARIED, "model", "data", "optim")
VARIANTS = {
    (group, name): yaml.safe_load(file.read_text())["_target_"]
    for group in PARTS
    for name, file in groups()[group].items()
}
CLASSES = {cell: resolve(cell[0], target) for cell, target in VARIANTS.items()}
ALL = set(VARIANTS)  # one cell for each variant, in the loop that all share
NORMED = ("qk_norm", "differential", "mla", "retention", "gla", "gated_deltanet", "mamba2")  # attention with RMSNorm
AS_THEY_ARE = Sources()


def qualified(name: str) -> str:
    """The qualified name of the only definition of this name."""
    files = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in SOURCES]
    modules = [module for module in files if name in AS_THEY_ARE.module(module).definitions]
    assert len(modules) == 1, f"{name} is in {modules}"
    return f"{modules[0]}.{name}"


def file_of(name: str) -> str:
    """The source file of a definition."""
    return f"{qualified(name).rpartition('.')[0].replace('.', '/')}.py"


@functools.cache
def needs(target: str) -> frozenset[str]:
    """The definitions that a run with a part needs."""
    return frozenset(AS_THEY_ARE.walk([*LOOP, target]))


def cells_with(name: str) -> set[tuple[str, str]]:
    """The cells that need a definition."""
    return {cell for cell, target in VARIANTS.items() if qualified(name) in needs(target)}


def changed_by(edits: dict[str, str]) -> set[tuple[str, str]]:
    """The cells whose code is another one with files edited."""
    edited = Sources({file: text.encode() for file, text in edits.items()})
    changed = set()
    for cell, target in VARIANTS.items():
        parts = ((cell[0], target),)
        if edited.code_of(parts).content != AS_THEY_ARE.code_of(parts).content:
            changed.add(cell)
    return changed


def users(target: Any) -> set[tuple[str, str]]:
    """The cells that use a class or function, by what derives from it in Python."""
    if target.__name__ in ("Embedding", "Position"):  # of every model that reads ids, and where positions may differ
        return ALL
    using = {cell for cell, variant in CLASSES.items() if target in getattr(variant, "__mro__", [variant])}
    if target.__name__ == "RMSNorm":
        using |= {("attention", name) for name in NORMED}
    return using


def test_a_run_has_the_code_of_the_loop_and_of_its_parts():
    definitions = code_of({"norm": VARIANTS["norm", "bn"], "data": VARIANTS["data", "copy"]}).definitions
    assert definitions.items() > code_of({}).definitions.items()
    assert {"ablate.training.trainer.Trainer", "ablate.model.norm.Moments"} <= definitions.keys()
    assert "ablate.data.sequence.Sequence" in definitions
    assert not any("LayerNorm" in name or "stdlib" in name for name in definitions)


@pytest.mark.parametrize("cell", VARIANTS, ids="=".join)
def test_a_variant_counts_for_the_cells_that_use_it_and_for_no_others(cell):
    target = CLASSES[cell]
    name = f"{target.__module__}.{target.__name__}"
    assert {other for other, path in VARIANTS.items() if name in needs(path)} == users(target)


@pytest.mark.parametrize(
    ("group", "key", "word"),
    [(group, key, word) for group in CHOSEN for key in CHOSEN[group] for word in CHOSEN[group][key]],
)
def test_a_class_that_a_setting_chooses_counts_for_the_cells_that_have_the_setting(group, key, word):
    target = CHOSEN[group][key][word]
    plain = component(group, {"residual": "pre"}.get(group, "mha"))

    def has_class(settings):
        return target in code_of(code_parts(typed(CONFIG | {group: plain | settings}))).definitions

    otherwise = CONFIG["norm"]["_target_"] == target
    assert has_class({key: word})
    for other in [{}, {key: None}, *({key: each} for each in CHOSEN[group][key] if each != word)]:
        assert has_class(other) == otherwise


def with_other_words(text: str) -> str:
    """A source with other comments, docstrings and formatting."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node):
                del node.body[0]
            node.body.insert(0, ast.Expr(ast.Constant("Something else.")))
    return "# a comment\n\n\n" + ast.unparse(tree).replace("\n", "  # another\n\n", 1)


EVERY_PART = tuple((group, target) for (group, _), target in VARIANTS.items())


def test_comments_docstrings_and_formatting_change_nothing():
    edits = {file: with_other_words(source.decode()) for file, source in SOURCES.items()}
    assert all(edits[file] != SOURCES[file].decode() for file in edits)
    edited = Sources({file: text.encode() for file, text in edits.items()})
    assert edited.code_of(EVERY_PART).content == AS_THEY_ARE.code_of(EVERY_PART).content


def test_a_module_that_moves_changes_nothing():
    """ablate.model.norm as ablate.layers.norms."""
    edits = {"ablate/layers/norms.py": SOURCES["ablate/model/norm.py"], "ablate/model/norm.py": b""}
    for file, source in SOURCES.items():
        if b"ablate.model.norm " in source and file != "ablate/model/norm.py":
            edits[file] = source.replace(b"ablate.model.norm ", b"ablate.layers.norms ")
    moved = [(group, target.replace("ablate.model.norm.", "ablate.layers.norms.")) for group, target in EVERY_PART]
    now = Sources(edits).code_of(tuple(moved))
    before = AS_THEY_ARE.code_of(EVERY_PART)
    assert now.content == before.content
    assert any("ablate.layers.norms." in name for name in now.definitions)


SHARED = dict.fromkeys(("Trainer", "learning_rate", "score", "Dropout", "loss_of", "build_init"), ALL) | {
    "RunningNorm": users(RunningNorm),
    "QuadraticMean": {("norm", "powernorm")},
    "Pretrained": {("embedding", "elmo"), ("embedding", "word2vec")},
    "angles": {("position", name) for name in ("sinusoidal", "rope", "partial_rope", "xpos")},
    "LanguageModelling": {("data", name) for name in ("stdlib", "text", "tokens", "hf", "mlm")},
    "Synthetic": users(Synthetic),
}
UNUSED = (
    "MetricsWriter",
    "write_atomic",
    "Lease",
    "survey",
    "attempt",
    "resolve_auto",
    "check_cells",
    "Claim",
    "Manifest",
)


@pytest.mark.parametrize("name", [*SHARED, *UNUSED])
def test_a_shared_definition_counts_for_all_that_share_it(name):
    assert cells_with(name) == SHARED.get(name, set())


@pytest.mark.parametrize("name", sorted(NEUTRAL))
def test_a_neutral_name_is_one_definition_where_nothing_is_computed(name):
    """In the packages of settings and of files, which load neither torch nor NumPy."""
    module = qualified(name).rpartition(".")[0]
    assert module.split(".")[1] in ("config", "runs")
    statements = ast.parse(SOURCES[file_of(name)]).body
    at_import = [ast.unparse(each) for each in statements if isinstance(each, ast.Import | ast.ImportFrom)]
    assert not any(text.split()[1].partition(".")[0] in ("torch", "numpy") for text in at_import)


def test_what_a_module_does_when_it_is_imported_counts():
    norm = SOURCES["ablate/model/norm.py"].decode()
    assert changed_by({"ablate/model/norm.py": f"{norm}\ntorch.set_default_dtype(torch.float64)\n"}) == ALL
    unused = "\n\nclass MaxNorm(LayerNorm):\n    def forward(self, x, mask=None):\n        return x / x.abs().amax()\n"
    assert changed_by({"ablate/model/norm.py": norm + unused}) == set()
    copying = SOURCES["ablate/data/copying.py"].decode()
    cells = {("data", name) for name in ("copy", "reverse", "sort", "selective_copy")}
    assert changed_by({"ablate/data/copying.py": f"{copying}\nif np.__version__ < '1':\n    LARGE = 3\n"}) == cells
    assert changed_by({"ablate/data/copying.py": f"{copying}\nif __name__ == '__main__':\n    LARGE = 3\n"}) == set()


MODULES = {
    "ablate/zoo/left.py": "def scale(x):\n    return deep(x)\ndef deep(x):\n    return x\n",
    "ablate/zoo/right.py": "def scale(x):\n    return deep(x)\ndef deep(x):\n    return 2 * x\n",
    "ablate/zoo/registry.py": "TABLE = {}\ndef register(c):\n    TABLE[c.__name__] = c\n    return c\n"
    "@register\ndef one():\n    return 1\ndef make(name):\n    return TABLE[name]\n",
    "ablate/zoo/whole.py": "from ablate.zoo import left as module\nimport torch.nn.functional as F\n"
    "from ablate.zoo.left import scale as l\nfrom ablate.zoo.right import scale as r\n"
    "def first(x):\n    return l(x) - r(x)\n"
    "def attribute(x):\n    return module.scale(x)\n"
    "def inside(x):\n    from ablate.zoo.left import scale\n    return scale(x)\n"
    "def outside(x):\n    return F.relu(x)\n"
    "class Part:\n    '''A docstring.'''\n    def forward(self, x: 'annotated'):\n        return SIZE * x\n"
    "SIZE = 3\nSIZE += 1\ndef annotated():\n    pass\n",
    "ablate/zoo/__init__.py": "from ablate.zoo.whole import first as shown\n",
}


def in_zoo(target: str, **edits: str) -> tuple[str, set[str]]:
    """The content of what a name of these modules needs, and its definitions, with modules edited."""
    texts = MODULES | {f"ablate/zoo/{name}.py": text for name, text in edits.items()}
    sources = Sources({file: text.encode() for file, text in texts.items()})
    code = sources.code_of((("norm", f"ablate.zoo.{target}"),))
    return code.content, {name.removeprefix("ablate.zoo.") for name in code.definitions if ".zoo." in name}


WHOLE = MODULES["ablate/zoo/whole.py"]


@pytest.mark.parametrize(
    ("target", "module", "old", "new"),
    [
        ("whole.first", "right", "2 * x", "3 * x"),
        ("whole.attribute", "left", "return x", "return -x"),
        ("whole.inside", "whole", "    from ablate.zoo.left", "    from ablate.zoo.right"),
        ("whole.outside", "whole", "torch.nn.functional", "mine.functional"),
        ("whole.Part", "whole", "SIZE += 1", "SIZE += 2"),
        ("registry.make", "registry", "return 1", "return 2"),
    ],
)
def test_an_edit_of_what_a_definition_refers_to_is_another_code(target, module, old, new):
    text = MODULES[f"ablate/zoo/{module}.py"]
    assert old in text
    assert in_zoo(target)[0] != in_zoo(target, **{module: text.replace(old, new)})[0]
