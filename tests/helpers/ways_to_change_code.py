"""Ways to change what user code computes, each an edit of a file, and what comes of them.

That is what `pk.part()` returned before and after the edit, and whether the key of a run with this part is another one.
"""

import dataclasses
import functools
import importlib
import importlib.util
import os
import py_compile
import sys
import sysconfig
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

NATIVE = ("_bisect", "_heapq", "_json", "_csv")  # native modules of Python that work in another package, too
TIME = 10**9


@dataclasses.dataclass
class Way:
    """An edit of `file`, None for no file, in a package whose `__init__.py` is `init`; `part` returns X unless it is
    defined there."""

    name: str
    init: str
    file: str = "pk/m.py"
    before: str | None = "X = 1\n"
    after: str | None = "X = 2\n"
    more: dict[str, str] = dataclasses.field(default_factory=dict)  # further files
    is_seen: bool = True  # whether the key changes
    user: str = "pk"
    same_time: bool = False  # as before, with the bytecode of before
    same_value: bool = False  # whether the edit computes nothing


HERE = "from pathlib import Path\nhere = Path(__file__).parent\n"
TRY = "try:\n    from pk.m import X\nexcept ImportError:\n    from pk.n import X\n"
LOAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location('loaded', here.parent / 'x.py')
module = importlib.util.module_from_spec(spec)
"""
METADATA = "Metadata-Version: 2.1\nName: inst\nVersion: {}\n"
VERSION = "site-packages/inst-1.dist-info/METADATA"
INSTALLED = {VERSION: METADATA.format(1), "site-packages/inst.py": "X = 1\n"}

# Files of a package count as a whole, whatever imports or reads them.
IN_PACKAGE = [
    Way("a definition", "from pk.m import f\nX = f()", before="def f(): return 1", after="def f(): return 2"),
    Way("a module that is deleted", TRY, more={"pk/n.py": "X = 3"}, after=None),
    Way("a table in JSON", f"{HERE}import json\nX = json.loads((here / 'x.json').read_text())", "pk/x.json", "1", "2"),
    Way("a native module", "import pk.{native}\nX = 0", "pk/{native}{ending}", same_value=True),
    Way("an edit of the same size at the same time", "from pk.m import X", same_time=True),
    Way("a single module", "", "single.py", "def part(): return 1", "def part(): return 2", user="single"),
    Way(
        "a package without __init__.py",
        "",
        "bare/m.py",
        more={"bare/part.py": "from bare.m import X\ndef part(): return X"},
        user="bare.part",
    ),
    Way(
        "an installed package", "", "site-packages/inst.py", "def part(): return 1", "def part(): return 2", user="inst"
    ),
]

OUTSIDE = [
    Way("a helper", "import helper as h\nX = h.X", "helper.py"),
    Way("a helper in a function", "def part():\n    from tools.m import X\n    return X", "tools/m.py"),
    Way("a helper by a computed name", "import importlib\nX = importlib.import_module('hel' + 'per').X", "helper.py"),
    Way("a helper's edit of the same size at the same time", "from helper import X", "helper.py", same_time=True),
    Way("a native helper", "import tools.{native}\nX = 0", "tools/{native}{ending}", same_value=True),
    Way(
        "a helper in an archive",
        f"{HERE}import sys\nsys.path.insert(0, str(here.parent / 'tools.zip'))\nfrom zipped import X",
        "tools.zip/zipped.py",
    ),
    Way(
        "a folder that the package adds to the path",
        f"{HERE}import sys\nsys.path.insert(0, str(here.parent / 'vendored'))\nfrom inner import X",
        "vendored/inner.py",
    ),
    Way(
        "a module that is loaded by its path and registered",
        f"{HERE}{LOAD}sys.modules['loaded'] = module\nspec.loader.exec_module(module)\nX = module.X",
        "x.py",
    ),
    Way(
        "an installed helper's version",
        "import inst\nX = 0",
        VERSION,
        METADATA.format(1),
        METADATA.format(2),
        more=INSTALLED,
        same_value=True,
    ),
]

NOT_SEEN = [
    Way("data outside the package", f"{HERE}X = (here.parent / 'x.txt').read_text()", "x.txt", is_seen=False),
    Way(
        "a module that is loaded by its path and not registered",
        f"{HERE}{LOAD}spec.loader.exec_module(module)\nX = module.X",
        "x.py",
        is_seen=False,
    ),
    Way(
        "an installed helper's code under one version",
        "from inst import X",
        "site-packages/inst.py",
        more=INSTALLED,
        is_seen=False,
    ),
]
WAYS = [*IN_PACKAGE, *OUTSIDE, *NOT_SEEN]


def native_module() -> Path | None:
    """A native module of Python, if it has one in a file."""
    folder = Path(sysconfig.get_config_var("DESTSHARED"))
    files = [file for name in NATIVE for file in folder.glob(f"{name}.*")]
    return files[0] if files else None


def write(folder: Path, name: str, text: str | None) -> None:
    """Write a file, an archive's member, or a native module with the text after its end; None deletes the file."""
    native = native_module()
    stem, dot, ending = native.name.partition(".") if native else ("", "", "")
    file = folder / name.replace("{native}", stem).replace("{ending}", dot + ending)
    file.parent.mkdir(parents=True, exist_ok=True) if file.parent.suffix != ".zip" else None
    if text is None:
        file.unlink(missing_ok=True)
    elif native and "{native}" in name:
        file.unlink(missing_ok=True)  # it may be loaded
        file.write_bytes(native.read_bytes() + text.encode())
    elif file.parent.suffix == ".zip":
        with zipfile.ZipFile(file.parent, "w") as archive:
            archive.writestr(file.name, text)
    else:
        file.write_text(text.replace("{native}", stem))


@functools.cache
def plain_config() -> Any:
    """A configuration of built-in components."""
    from composed import composed

    return composed("data=text").config


def compute(way: Way) -> tuple[str, str]:
    """What the part returns, imported anew, and a run's key."""
    from ablate.runs.key import run_key
    from ablate.runs.user_files import forget_local_modules, record_user_code

    forget_local_modules()
    for name in ("inst", "below"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    module: Any = importlib.import_module(way.user)
    value = module.part() if hasattr(module, "part") else module.X
    config = plain_config().with_value("norm", {"_target_": f"{way.user}.part", "_partial_": True})
    return repr(value), run_key(config, 0, "data", record_user_code([way.user]))


def attempt(way: Way, folder: Path) -> dict[str, Any]:
    """The values before and after an edit, and whether the key is another one."""
    if way.init:
        returns = "" if "def part" in way.init else "\ndef part():\n    return X\n"
        write(folder, "pk/__init__.py", way.init + returns)
    for name, text in (way.more | {way.file: way.before}).items():
        write(folder, name, text)
    if way.same_time:
        file = str(folder / way.file)
        os.utime(file, (TIME, TIME))
        py_compile.compile(file, doraise=True)
    path = list(sys.path)
    sys.path[:0] = [str(folder), str(folder / "site-packages")]
    value_before, key_before = compute(way)
    write(folder, way.file, way.after)
    if way.same_time:
        os.utime(file, (TIME, TIME))
    elif way.after is not None and (folder / way.file).is_file():
        later = time.time() + 10  # bytecode goes by whole seconds
        os.utime(folder / way.file, (later, later))
    value_after, key_after = compute(way)
    sys.path[:] = path
    return {"values": [value_before, value_after], "is_seen": key_before != key_after}


def try_all() -> dict[str, dict[str, Any]]:
    """What comes of each way, by its name.  For a process of its own, which imports what the ways write."""
    from ablate.runs.user_files import compile_from_source

    plain_config()  # its modules are no user code
    compile_from_source()
    with tempfile.TemporaryDirectory() as folder:
        return {way.name: attempt(way, Path(folder) / str(i)) for i, way in enumerate(WAYS)}
