"""The content of user code: the files of the packages that `user=` names, and of the local modules that were imported.

A module is local if it is neither installed nor Python's nor of this package.  Nothing here needs torch.
"""

import ast
import functools
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from ablate.config.targets import NAME, OWN_PACKAGES
from ablate.runs.code_digest import PACKAGE
from ablate.runs.records import UserCode

INSTALLED = {"site-packages", "dist-packages"}
PYTHON = sysconfig.get_path("stdlib") + os.sep
OWN = tuple(f"{PACKAGE.parent / name}{os.sep}" for name in OWN_PACKAGES)
COUNTED = {"torch", "numpy", *OWN_PACKAGES, *sys.stdlib_module_names}  # are in each run's key by version or by code
RESULTS = {"runs", "studies"}  # folders of a results folder
CHANGED = "code or libraries changed after the plan was made; give the command again"


def find(package: str) -> ModuleSpec | None:
    """The spec with which Python would import a package, or None."""
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None


def is_local(file: str) -> bool:
    """Whether a module's file is neither installed nor Python's nor of this package."""
    is_installed = bool(INSTALLED.intersection(Path(file).parts))
    return not is_installed and not file.startswith((PYTHON, *OWN))


def imported_files() -> dict[str, str]:
    """The file of each imported module that has one, by the module's name."""
    files = {}
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and name not in ("__main__", "__mp_main__"):
            files[name] = os.path.abspath(file)
    return files


def local_modules() -> dict[str, str]:
    """The imported local modules, and the file of each."""
    return {name: file for name, file in imported_files().items() if is_local(file)}


def forget_local_modules() -> None:
    """Have local modules imported anew, as they are now: this process was forked from one that may have older ones."""
    files = imported_files()
    local = local_modules()
    tops = {name.partition(".")[0] for name in local}
    for name in list(sys.modules):
        has_no_file = name not in files  # a package without __init__.py
        if name in local or (has_no_file and name.partition(".")[0] in tops and name != "__main__"):
            del sys.modules[name]
    importlib.invalidate_caches()


def compile_from_source() -> None:
    """Have Python compile local modules from their sources.  It knows a file's bytecode by the file's size and time,
    which an edit can leave as they were."""
    Loader = importlib.machinery.SourceFileLoader
    if "get_code" in vars(Loader):
        return

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> object:
        file = loader.get_filename(name)
        if is_local(os.path.abspath(file)):
            return loader.source_to_code(loader.get_data(file), file)
        return super(Loader, loader).get_code(name)

    Loader.get_code = get_code  # type: ignore[method-assign, assignment]


def files_of(package: str) -> dict[str, str]:
    """The files of a top-level package, by the path inside the folder that holds it.

    Hidden files, bytecode, linked folders and results folders are left out.
    """
    spec = find(package)
    if spec is None:
        return {}
    if spec.submodule_search_locations is None:
        return {os.path.basename(spec.origin): spec.origin} if spec.origin else {}
    files = {}
    for i, root in enumerate(spec.submodule_search_locations):
        for folder, folders, names in os.walk(root):
            if folders and RESULTS.issubset(folders):
                folders.clear()
                continue
            folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
            for name in names:
                file = os.path.join(folder, name)
                if not name.startswith(".") and not name.endswith(".pyc") and os.path.isfile(file):
                    inner = Path(os.path.relpath(file, root)).as_posix()
                    files[f"{package}{i or ''}/{inner}"] = os.path.abspath(file)
    return files


def digest_of_file(file: str) -> str:
    """A digest of a file's content; of a module in an archive, that of the archive."""
    path = Path(file)
    while not path.is_file() and path != path.parent:
        path = path.parent
    if not path.is_file():
        return ""
    with open(path, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def package_files(user: Iterable[str]) -> dict[str, str]:
    """The files of user packages, by the path inside the folder that holds the package."""
    files: dict[str, str] = {}
    for package in sorted({name.partition(".")[0] for name in user}):
        files |= files_of(package)
    return files


def digests_of(files: dict[str, str]) -> dict[str, str]:
    """A digest of each file's content, by the file's name."""
    return {name: digest_of_file(files[name]) for name in sorted(files)}


def imports_in(source: bytes) -> set[str]:
    """The dotted names that a source may import, by statements or by strings; of a module that is imported as a whole,
    its name."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
            names |= {node.value} - {"ablate"}
    return names


@functools.cache
def distributions() -> Mapping[str, list[str]]:
    """The installed distributions by their top-level modules, which takes a moment to find."""
    return importlib.metadata.packages_distributions()


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """The versions of the installed distributions among imported modules of these names."""
    imported = imported_files()
    versions = {}
    for top in sorted({name.partition(".")[0] for name in names} - COUNTED):
        if top not in sys.modules or is_local(imported.get(top, PYTHON)):
            continue
        try:
            versions[top] = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            for distribution in distributions().get(top, []):
                versions[distribution] = importlib.metadata.version(distribution)
    return versions


def record_user_code(user: Iterable[str]) -> UserCode:
    """The user code that this process has imported."""
    packages = package_files(user)
    modules = local_modules()
    in_packages = set(packages.values())
    names: set[str] = set()
    for name, file in imported_files().items():
        is_source = file.endswith(".py") and os.path.isfile(file)  # not in an archive
        if is_source and (name in modules or file in in_packages):
            names |= imports_in(Path(file).read_bytes())
    return UserCode(
        packages=digests_of(packages),
        modules=digests_of({name: file for name, file in modules.items() if file not in in_packages}),
        ablate=sorted(name for name in names if name.partition(".")[0] == "ablate"),
        versions=versions_of(names),
    )


def refuse_changed(planned: UserCode, user: Iterable[str]) -> None:
    """Raise RuntimeError if a file of user packages is not as it was in the plan."""
    if digests_of(package_files(user)) != planned.packages:
        raise RuntimeError(CHANGED)


def refuse_unplanned(planned: UserCode, user: Iterable[str], before: Iterable[str]) -> None:
    """Raise RuntimeError if this process has imported a local module that it did not in the plan, or one with another
    content; modules imported `before` do not count."""
    earlier = set(before)
    packages = {file: name for name, file in package_files(user).items()}
    for name, file in local_modules().items():
        if name in earlier:
            continue
        digest = planned.packages.get(packages[file]) if file in packages else planned.modules.get(name)
        if digest is None and file not in packages:
            how = f"import it at the top of a module, or add {name.partition('.')[0]} to user="
            raise RuntimeError(f"user code imported {name} in training, not in the plan, so it is in no key; {how}")
        if digest != digest_of_file(file):
            raise RuntimeError(CHANGED)
