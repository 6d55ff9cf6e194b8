"""A run's key follows the code that its cell uses, and nothing else.  Sources are edited in memory."""

import ast
import functools
import inspect
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from test_components import CONFIG, component

from ablate.config.components import resolve
from ablate.config.groups import groups
from ablate.config.schema import VARIED, typed
from ablate.config.targets import CHOSEN
from ablate.data.sequence import Synthetic
from ablate.model.norm import RunningNorm
from ablate.results.code_hash import LOOP, NEUTRAL, PACKAGE, Code, Sources, code_of
from ablate.results.code_index import WHOLE
from ablate.results.run_key import code_parts

PARTS = (*VARIED, "model", "data", "optim")
VARIANTS = {
    (group, name): yaml.safe_load(file.read_text())["_target_"]
    for group in PARTS
    for name, file in groups()[group].items()
}
TARGETS = {
    group: list({resolve(group, name): None for (one, _), name in VARIANTS.items() if one == group}) for group in PARTS
}
CELLS = set(VARIANTS)  # each the variant, in the loop that all share
# Who uses a variant without deriving from it.
NORMED = ("qk_norm", "differential", "mla", "retention", "gla", "gated_deltanet", "mamba2")
USERS = {"RMSNorm": {("attention", name) for name in NORMED}}
USERS |= {"Embedding": CELLS}  # every model that reads ids has one, though the neutral variant is no part of a key
USERS |= {"Position": CELLS}  # so does a stack, whose encoding may differ between layers


def with_edits(*edits: tuple[Path, str]) -> Sources:
    """The sources, with files edited."""
    return Sources({"ablate": [PACKAGE]}, {path: text.encode() for path, text in edits})


def of(sources: Sources) -> dict[str, set[str]]:
    """What each variant alone needs, by its target, and the loop that all runs share."""
    found = {target: {*sources.needed_by(target).values()} for target in VARIANTS.values()}
    return found | {"loop": set().union(*(sources.needed_by(root).values() for root in sources.loop))}


@functools.cache
def before() -> Sources:
    """The sources as they are."""
    return with_edits()


def changed(*edits: tuple[Path, str]) -> set[tuple[str, str]]:
    """The cells whose code is another one with files edited: all where the loop's is."""
    was = of(before())
    other = {target for target, digests in of(with_edits(*edits)).items() if digests != was[target]}
    return CELLS if "loop" in other else {cell for cell, target in VARIANTS.items() if target in other}


def named(*names: str) -> dict[str, tuple[str, str]]:
    """The definitions of ours with these names, one for each: module and name."""
    found = before().definitions_named(names)
    assert sorted(name for _, name in found) == sorted(names)
    return {name: (module, name) for module, name in found}


def needing(node: tuple[str, str]) -> set[tuple[str, str]]:
    """The cells that need a definition, whose code an edit of it changes: all where the loop does."""
    needs = {root: node in before().needed_by(root) for root in {*VARIANTS.values(), *before().loop}}
    in_loop = any(needs[root] for root in before().loop)
    return CELLS if in_loop else {cell for cell, target in VARIANTS.items() if needs[target]}


def test_a_cell_has_the_code_of_the_loop_and_of_its_parts():
    found = code_of(dict(enumerate([VARIANTS["norm", "bn"], VARIANTS["data", "copy"]]))).definitions
    assert found.items() > code_of({}).definitions.items() and "ablate.training.trainer.Trainer" in found
    assert {"ablate.model.norm.Moments", "ablate.data.sequence.Sequence"} <= found.keys()
    assert not any("LayerNorm" in name or "stdlib" in name for name in found)


def with_statement(path: Path, name: str, statement: str = "harmless = 0", text: str | None = None) -> str:
    """A file's source, or a text in its place, with a statement at the end of one of its top-level definitions."""
    lines = (text or path.read_text()).splitlines()
    [node] = [n for n in ast.parse("\n".join(lines)).body if getattr(n, "name", None) == name]
    last = node.body[-1]
    lines.insert(last.end_lineno, " " * last.col_offset + statement)
    return "\n".join(lines)


def users(target: Any) -> set[tuple[str, str]]:
    """The cells that use a class or function, by what Python says that derives from it."""
    found = {cell: resolve(cell[0], name) for cell, name in VARIANTS.items()}
    using = {cell for cell, one in found.items() if target in (inspect.getmro(one) if inspect.isclass(one) else [one])}
    return using | USERS.get(target.__name__, set())


def test_each_variant_counts_for_the_cells_that_use_it_and_for_no_others():
    for target in chain(*TARGETS.values()):
        assert needing((target.__module__, target.__name__)) == users(target), target


def test_edited_variants_change_the_cells_that_use_them_and_no_others():
    """One of each group at once."""
    texts: dict[Path, str] = {}
    targets = [of_group[-1] for of_group in TARGETS.values() if users(of_group[-1]) != CELLS]
    for target in targets:
        path = Path(inspect.getfile(target))
        texts[path] = with_statement(path, target.__name__, text=texts.get(path))
    assert changed(*texts.items()) == set().union(*map(users, targets)) != CELLS


@pytest.mark.parametrize(
    ("group", "key", "word"),
    [(group, key, word) for group in CHOSEN for key in CHOSEN[group] for word in CHOSEN[group][key]],
)
def test_a_class_that_a_setting_chooses_counts_for_the_cells_that_have_the_setting_and_no_others(group, key, word):
    class_name, name = CHOSEN[group][key][word].rpartition(".")[2], {"False": False}.get(word, word)
    [node] = named(class_name).values()
    others = [{key: {"False": False}.get(each, each)} for each in CHOSEN[group][key] if each != word]
    plain = component(group, {"residual": "pre"}.get(group, "mha"))
    cells = [typed(CONFIG | {group: plain | settings}) for settings in ({key: name}, {}, {key: None}, *others)]
    told = [".".join(node) in before().code(code_parts(cell)).definitions for cell in cells]
    assert told == [True, CONFIG["norm"]["_target_"] == CHOSEN[group][key][word]] + told[1:2] * (len(told) - 2)


def test_code_from_outside_has_every_class_that_words_can_choose():
    cell = typed(CONFIG | {"attention": {"_target_": "mine.attention.Own", "_partial_": True}})
    assert set(CHOSEN["attention"]["qk_norm"].values()) <= set(code_parts(cell).values())


def with_other_words(path: Path) -> str:
    """A file's source with other comments, docstrings and formatting."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body[0] = ast.Expr(ast.Constant("Something else."))
    return "# a comment\n\n\n" + ast.unparse(tree).replace("\n", "  # another\n\n", 1)


def test_comments_docstrings_and_formatting_change_nothing():
    used = code_of({".".join(cell): target for cell, target in VARIANTS.items()}).definitions
    files = dict(Sources({"ablate": [PACKAGE]}).files_below("ablate"))
    paths = [files[name] for name in sorted({one.rpartition(".")[0] for one in used})[::2]]
    edits = [(path, with_other_words(path)) for path in paths]
    assert len(edits) > 25 and all(text != path.read_text() for path, text in edits)
    if changed(*edits):
        assert [path for path, text in edits if changed((path, text))] == []


SHARED = dict.fromkeys(("Trainer", "learning_rate", "score", "Dropout", "loss_of", "initialise"), CELLS) | {
    "RunningNorm": users(RunningNorm),
    "QuadraticMean": {("norm", "powernorm")},
    "Pretrained": {("embedding", "elmo"), ("embedding", "word2vec")},
    "angles": {("position", name) for name in ("sinusoidal", "rope", "partial_rope", "xpos")},
    "LanguageModelling": {("data", name) for name in ("stdlib", "text", "tokens", "hf", "mlm")},
    "Synthetic": users(Synthetic),
}
# What no number depends on; the last two are what a study says and what of it is on disk.
UNUSED = ("MetricsWriter", "write_atomic", "Lease", "clean", "attempt", "resolve_auto", "check_study")
UNUSED += ("Claim", "Manifest")


def test_what_is_shared_counts_for_all_that_share_it_and_what_is_not_used_for_none():
    for name, node in named(*SHARED, *UNUSED).items():
        assert needing(node) == SHARED.get(name, set()), name


def test_what_the_hash_names_by_name_is_one_definition_each():
    assert named(*LOOP, *NEUTRAL).keys() == {*LOOP, *NEUTRAL}


def test_no_module_of_ours_that_training_imports_does_anything_then():
    """Or which modules a run's definitions stand in would be part of its key."""
    found = code_of({".".join(cell): target for cell, target in VARIANTS.items()}).definitions
    assert [name for name in found if name.endswith(WHOLE)] == []


def test_what_a_module_does_when_it_is_imported_counts():
    path = PACKAGE / "model" / "norm.py"
    assert changed((path, path.read_text() + "\ntorch.set_default_dtype(torch.float64)\n")) == CELLS
    new = "\n\nclass MaxNorm(LayerNorm):\n    def forward(self, x, mask=None):\n        return x / x.abs().amax()\n"
    assert changed((path, path.read_text() + new)) == set(), "it does nothing but define"
    path = PACKAGE / "data" / "copying.py"
    cells = {("data", name) for name in ("copy", "reverse", "sort", "selective_copy")}
    assert changed((path, path.read_text() + "\nif np.__version__ < '1':\n    LARGE = 3\n")) == cells
    assert changed((path, path.read_text() + "\nif __name__ == '__main__':\n    LARGE = 3\n")) == set()


OWN = {
    "mine/__init__.py": "from .norms import Plain as Shown, Scaled\nfrom mine.stars import *\n",
    "mine/norms.py": (
        "import math as m\nfrom . import tools\nfrom .deep.more import twice as double, unused\n"
        "import mine.tools as t\nimport beside_mine\n"
        "class Plain:\n    def forward(self, x):\n        return double(x)\n"
        "class Scaled(Plain):\n    size = t.SIZE\n"
        "class Lazy:\n    def forward(self, x):\n        from .lazily import work\n        return work(x)\n"
        "class Anything:\n    def forward(self, x, name):\n        return getattr(tools, name)(x)\n"
        "class Beside:\n    def forward(self, x):\n        return beside_mine.used(m, x)\n"
    ),
    "mine/tools.py": "SIZE = 3\nSIZE += 1\ndef other(x):\n    return x\n",
    "mine/deep/more.py": "def twice(x):\n    return helper(x)\ndef helper(x):\n    return x\ndef unused():\n    pass\n",
    "mine/lazily.py": "async def work(x):\n    return x\n",
    "mine/stars.py": "def starry(x):\n    return x\n",
    "mine/alone.py": "class Alone:\n    pass\n",
    "beside_mine.py": "def used(x):\n    return x\ndef unused():\n    pass\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


class Apart(Sources):
    """Sources of a user's package alone."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.loop, self.neutral = [], set()


def users_code(folder: Path, target: str, edited: dict[str, str] | None = None) -> Code:
    """What a target of the user's package passes through, with files edited."""
    edits = {folder / "mine" / f"{name}.py": text.encode() for name, text in (edited or {}).items()}
    return Apart({"mine": [folder / "mine"]}, edits).code({"norm": target})


def own(folder: Path, target: str, edited: dict[str, str] | None = None) -> dict[str, str]:
    """Its definitions."""
    return users_code(folder, target, edited).definitions


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("mine.Shown", {"norms.Plain", "deep.more.twice", "deep.more.helper"}),
        ("mine.Scaled", {"norms.Plain", "norms.Scaled", "deep.more.twice", "deep.more.helper", "tools.SIZE"}),
        ("mine.norms.Lazy", {"norms.Lazy", "lazily.work"}),
        ("mine.norms.Anything", {"norms.Anything", "tools.SIZE", "tools.other"}),
        ("mine.starry", {"stars.starry"}),
        ("mine.alone.Alone", {"alone.Alone"}),
    ],
)
def test_what_a_part_of_a_users_package_uses(target, names, package):
    assert set(own(package, target)) == {f"mine.{name}" for name in names}
    assert set(own(package, "mine.norms.Beside")) == {"mine.norms.Beside", "beside_mine.used"}, "code beside it"


USING = "class Plain:\n    def forward(self, x):\n        return {}(x)\n"
IMPORTS = {
    "from mine.deep.more import twice": "twice",
    "from mine.deep.more import twice as double": "double",
    "from .deep.more import twice": "twice",
    "from mine.deep import more": "more.twice",
    "import mine.deep.more": "mine.deep.more.twice",
    "import mine.deep.more as elsewhere": "elsewhere.twice",
    "from mine.shown import twice": "twice",
    "": "twice",  # in the same module
}


def test_where_code_stands_and_how_it_is_imported_does_not_count(package):
    files, found = {"shown": "from mine.deep.more import twice\n"}, set()
    for line, name in IMPORTS.items():
        moved = "" if line else OWN["mine/deep/more.py"]
        new = f"{moved}{line}\n{USING.format(name)}"
        found.add(users_code(package, "mine.new.Plain", files | {"new": new}).content)
    inside = USING.format("twice").replace("x):\n", "x):\n        from mine.deep.more import twice\n")
    found.add(users_code(package, "mine.other.place.Plain", {"other/place": inside}).content)
    assert len(found) == 1
    hinted = "import torch\nclass Plain:\n    size: torch.Size\n"
    other = "from torch import Size\nclass Plain:\n    size: Size\n"
    one, two = (users_code(package, "mine.new.Plain", {"new": text}).content for text in (hinted, other))
    assert one == two


def test_two_parts_of_one_name_that_change_places_are_other_code(package):
    """Their sources are equal, and so is what they call; what that calls, four calls deep, is not."""
    calls = "".join(f"def d{i}(x):\n    return d{i + 1}(x)\n" for i in range(4))
    for name, factor in (("left", 1), ("right", 2)):
        text = f"{calls}def d4(x):\n    return {factor} * x\nclass Part:\n    def f(self, x):\n        return d0(x)\n"
        (package / "mine" / f"{name}.py").write_text(text)
    sources = Apart({"mine": [package / "mine"]})
    parts = {"norm": "mine.left.Part", "ffn": "mine.right.Part"}
    swapped = {"norm": parts["ffn"], "ffn": parts["norm"]}
    assert sources.code(parts).content != sources.code(swapped).content
    text = (  # two definitions of one name, each used by another function; then each by the other
        "from mine import left, right\ndef one(x):\n    return left.d4(x)\n"
        "def two(x):\n    return 2 * right.d4(x)\ndef both(x):\n    return one(x) + two(x)\n"
    )
    other = text.replace("left.", "other.").replace("right.", "left.").replace("other.", "right.")
    found = [users_code(package, "mine.new.both", {"new": each}).content for each in (text, other)]
    assert found[0] != found[1]


def test_local_names_lead_nowhere(package):
    text = (
        "from mine.deep.more import helper, twice\nSIZE = 1\nclass Plain:\n    SIZE = 2\n"
        "    def forward(self, helper, *twice):\n        return [SIZE for SIZE in helper(twice)]\n"
    )
    assert set(own(package, "mine.new.Plain", {"new": text})) == {"mine.new.Plain"}
    used = text.replace("helper, *twice", "x").replace("SIZE for SIZE in", "SIZE + y for y in")
    assert set(own(package, "mine.new.Plain", {"new": used})) >= {"mine.new.SIZE", "mine.deep.more.twice"}


def test_a_users_sources_count_where_they_are_used(package):
    before = own(package, "mine.Scaled")
    tools = OWN["mine/tools.py"]
    assert own(package, "mine.Scaled", {"tools": tools.replace("return x", "return 2 * x")}) == before
    after = own(package, "mine.Scaled", {"tools": tools.replace("+= 1", "+= 2")})
    assert {name for name in before if before[name] != after[name]} == {"mine.tools.SIZE"}
    assert own(package, "mine.Scaled", {"norms": OWN["mine/norms.py"].replace("math as m", "cmath as m")}) == before
    cmath = {"norms": OWN["mine/norms.py"].replace("math as m", "cmath as m")}
    assert own(package, "mine.norms.Beside", cmath) != own(package, "mine.norms.Beside"), "another import, one name"
    other = OWN["mine/norms.py"].replace("twice as double, unused", "unused as double")
    swapped = own(package, "mine.Shown", {"norms": other})
    assert "mine.deep.more.unused" in swapped and "mine.deep.more.twice" not in swapped
    broken = own(package, "mine.Scaled", {"deep/more": "def twice(:"})
    assert broken != before and own(package, "mine.Scaled", {"deep/more": "def twice(::"}) != broken


@pytest.mark.parametrize(
    "other",
    [
        "from mine.registry import register\n@register\nclass B:\n    pass\n",
        "from mine.registry import Meta\nclass B(metaclass=Meta):\n    pass\n",
        "from mine import registry\nregistry.REGISTRY['b'] = lambda: 1\n",
    ],
)
def test_a_registry_has_what_is_put_into_it(other, package):
    registry = (
        "REGISTRY = {}\ndef register(c):\n    REGISTRY[c.__name__] = c\ndef make(name):\n    return REGISTRY[name]\n"
        "class Meta(type):\n    def __init__(cls, *_):\n        register(cls)\n"
    )
    (package / "mine" / "registry.py").write_text(registry)
    files = {"__init__": "from . import registry, other\n", "other": other}
    found = own(package, "mine.registry.make", files)
    assert own(package, "mine.registry.make", files | {"other": other + "x = 1\n"}) == found
    changed = other.replace("pass", "size = 2").replace("1", "2")
    assert own(package, "mine.registry.make", files | {"other": changed}) != found


@pytest.mark.parametrize(
    "source",
    [
        "import importlib\ndef make(name):\n    return importlib.import_module(name).Alone\n",
        "import sys\ndef make(name):\n    return getattr(sys.modules[name], name)\n",
        "from .norms import *\ndef make(name):\n    return globals()[name]\n",
        "from .norms import Plain\ndef make(name):\n    return {c.__name__: c for c in Plain.__subclasses__()}[name]\n",
        "def __getattr__(name):\n    return len\ndef make():\n    pass\n",
    ],
)
def test_a_package_that_looks_names_up_by_string_counts_as_a_whole(source, package):
    found = own(package, "mine.by_name.make", {"by_name": source})
    assert "mine.alone.Alone" in found and "mine.lazily.work" in found


def test_a_process_goes_by_the_code_as_it_was_when_it_looked(tmp_path):
    """An edit while it runs changes no key, in a package of one's own either: Python does not import it again."""
    (tmp_path / "mine.py").write_text("class Norm:\n    size = 1\n")
    code = (
        "import pathlib, sys; from ablate.results.code_hash import PACKAGE, _sources, code_of, read\n"
        "before = code_of({'norm': 'mine.Norm'}, ['mine']).definitions\n"
        "assert 'mine.Norm' in before and 'ablate.training.trainer.Trainer' in before\n"
        "pathlib.Path('mine.py').write_text('class Norm: size = 2')\n"
        "_sources.cache_clear()\n"
        "after = code_of({'norm': 'mine.Norm', 'ffn': 'mine.other'}, ['mine']).definitions\n"
        "assert after['mine.Norm'] == before['mine.Norm']\n"
        "assert all(read.__wrapped__(f) == read(f) for f in PACKAGE.rglob('*.py'))\n"
        "assert read.cache_info().currsize == len(list(PACKAGE.rglob('*.py'))) + 1\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": f"{ROOT}:{tmp_path}"}, check=True)


def test_what_is_said_to_change_no_number_stands_where_none_is_computed():
    """In the packages of settings and of files, which load neither torch nor NumPy."""
    sources = Sources({"ablate": [PACKAGE]})
    assert {module.split(".")[1] for module, _ in sources.neutral} == {"config", "results"}
    for module, name in sources.neutral:
        loads = {each.partition(".")[0] for each in sources.module(module).loaded}
        assert not loads & {"torch", "numpy"}, f"{name} may change numbers"
