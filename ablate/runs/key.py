"""Run keys: the hash of everything that can change a run's numbers."""

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ablate.config.depth import mapped, variants_of
from ablate.config.schema import NO_NUMBERS, STUDY_KEYS, Config
from ablate.config.targets import BUILT_IN, CHOSEN, within
from ablate.runs import code_digest
from ablate.runs.code_digest import PACKAGE, Code
from ablate.runs.records import Provenance, UserCode
from ablate.runs.tables import class_name
from ablate.runs.user_files import digests_of, find, local_modules, package_files

CONSTANT = "ablate.training.schedule.Constant"
MOE = "ablate.model.ffn.MoE"
APART = ("data", "optim", "schedule", "step")  # compiled models are shared between cells that differ in these
FORMAT = 2  # of keys
HALVES = ("init", "data")  # random numbers that have a seed each
KEYED = ("numbers", "versions", "data", "study", "code")  # the parts of a run's provenance that its key hashes


def numbers(config: Config) -> dict[str, Any]:
    """The settings that a run's numbers depend on; data counts by its content, not by its path."""
    kept = {key: value for key, value in config.as_json().items() if key not in STUDY_KEYS}
    for section in ("train", "eval", "data"):
        kept[section] = {key: value for key, value in kept[section].items() if f"{section}.{key}" not in NO_NUMBERS}
    if kept["data"].get("order") == "random":  # the order of all runs before there was a choice
        del kept["data"]["order"]
    if kept["train"]["parts"] == 1:  # as in all runs before a batch could be split
        del kept["train"]["parts"]
    # Settings that are gone, as all runs had them.
    kept["seed"] = {"placebo": None} | kept["seed"]
    kept["model"] = {"head_bias": False} | kept["model"]
    kept["ffn"] = mapped(mapped(kept["ffn"], with_width), with_shared_gate)
    if config.schedule.get("_target_") == CONSTANT:
        kept["optim"] = {key: value for key, value in kept["optim"].items() if key != "min_lr_ratio"}
    return kept


def with_width(ffn: dict[str, Any]) -> dict[str, Any]:
    """An FFN's settings without `mult` and `multiple_of` if its width is set, as built-in FFNs then ignore them."""
    if ffn.get("hidden") is None or is_foreign(ffn):  # a user's class may use them in another way
        return ffn
    return {key: value for key, value in ffn.items() if key not in ("mult", "multiple_of")}


def with_shared_gate(ffn: dict[str, Any]) -> dict[str, Any]:
    """A mixture's settings with one that is gone, as all runs had it."""
    return {"shared_gate": None} | ffn if ffn.get("_target_") == MOE else ffn


def settings(config: Config) -> dict[str, Any]:
    """The settings that a run's numbers depend on, as keys and names hash them: `_target_`s as bare names, so that
    moved code counts as the same."""
    return renamed(numbers(config), class_name)


def batches(config: Config, fingerprint: str) -> str:
    """Hash of what determines a seed's batches: cells with equal values see the same ones, and their seeds pair."""
    shared = [fingerprint, config.data.get("context"), config.train.batch_size, config.seed.data]
    order = config.data.get("order", "random")
    if order != "random":
        shared.append(order)
    return _digest(shared)[:16]


def cell_id(name: str, config: Config, fingerprint: str) -> str:
    """A cell's id in manifests, the same in every study: a hash of its folder's name, its settings and its data."""
    return f"c{_digest([name, settings(config), fingerprint])[:10]}"


def run_key(config: Config, seed: int, fingerprint: str, user_code: UserCode | None = None) -> str:
    """`s<seed>-<hash>`: the name of a run's folder.  `user_code` is that of its cell."""
    parts = provenance(config, seed, fingerprint, user_code)
    digest = _digest([FORMAT, seed, {name: getattr(parts, name) for name in KEYED}])
    return f"s{seed}-{digest[:16]}"


def provenance(config: Config, seed: int, fingerprint: str, user_code: UserCode | None = None) -> Provenance:
    """Everything that a run's numbers depend on.  `source` and `definitions` are not part of the key."""
    import numpy

    code = code_of(config, user_code)
    keyed = settings(config)
    versions: dict[str, str | int] = {"torch": torch_version(), "numpy": numpy.__version__, "threads": 1}
    for name in (class_name(config.embedding["_target_"]), *kernels_of(config)):
        versions |= library_versions(name)
    if user_code:
        versions |= user_code.versions
    halves = {half: seed if value is None else value for half, value in keyed["seed"].items() if half in HALVES}
    return Provenance(
        format=FORMAT,
        numbers=_digest(keyed | {"seed": keyed["seed"] | halves}),
        versions=versions,
        data=fingerprint,
        source=renamed(config.data, class_name),
        study=config.study if config.is_private else None,
        code=code.content,
        definitions=code.definitions,
    )


def kernels_of(config: Config) -> list[str]:
    """The libraries whose kernels compute recurrences, if any."""
    return sorted({str(node["kernels"]) for node in variants_of(config.attention) if node.get("kernels")})


def code_of(config: Config, user_code: UserCode | None = None) -> Code:
    """The code that a cell's runs use; variants that the cell does not use do not count.  User code counts by file."""
    parts = code_parts(config)
    code = code_digest.code_of(parts, user_code.ablate if user_code else ())
    foreign = {path: target for path, target in parts.items() if not within(target, BUILT_IN)}
    if not foreign:
        return code
    files = user_code.files if user_code else {}
    return Code(_digest([code.content, foreign, files]), code.definitions | files)


def compiled_code(config: Config) -> str:
    """A digest of the code that a compiled model may consist of: that of its runs without the parts in APART."""
    parts = {path: target for path, target in code_parts(config).items() if path.partition(".")[0] not in APART}
    content = code_digest.code_of(parts).content
    return _digest([content, user_content(config.user)]) if config.user else content


def code_of_part(target: str, user: Iterable[str] = ()) -> str:
    """A digest of the code that one `_target_` depends on, without the training loop."""
    content = code_digest.part_digest(target)
    return content if within(target, BUILT_IN) else _digest([content, target, user_content(user)])


def user_content(user: Iterable[str]) -> dict[str, str]:
    """A digest of each file of user packages and of the local modules that this process has imported."""
    return digests_of(package_files(user) | local_modules())


def code_parts(config: Config) -> dict[str, str]:
    """The parts that a cell's runs use besides the training loop: `_target_`s by path, and the classes that words
    choose; for user code, which may choose any of them, all."""
    parts = dict(parts_of(numbers(config)))
    for group, keys in CHOSEN.items():
        for node in variants_of(getattr(config, group)):
            is_user_code = not within(node["_target_"], [PACKAGE.name])
            for key, classes in keys.items():
                for word, target in classes.items():
                    if is_user_code or str(node.get(key)) == word:
                        parts[f"{group}.{key}={word}"] = target
    return parts


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# The libraries that the numbers of a class depend on, by its name, and those of kernels.
LIBRARIES = {"Word2Vec": ("gensim",), "fla": ("fla-core", "triton")}


def torch_version() -> str:
    """`torch.__version__`, read from torch's version.py, since importing torch takes a second."""
    spec = None if "torch" in sys.modules else importlib.util.find_spec("torch")
    if spec and spec.origin:
        source = Path(spec.origin).with_name("version.py").read_text()
        written = re.search(r"^__version__ = '(.+)'$", source, re.MULTILINE)
        if written:
            return written[1]
    import torch

    return str(torch.__version__)


@functools.cache
def library_versions(name: str) -> dict[str, str]:
    """The versions of the libraries that a class (by its name) or kernels depend on; "" if not installed."""
    versions = dict.fromkeys(LIBRARIES.get(name, ()), "")
    for library in versions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[library] = importlib.metadata.version(library)
    return versions


def parts_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each `_target_` in a configuration, or in a part of one, with its dotted path."""
    if isinstance(value, Config):
        value = value.as_json()
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "_target_":
                yield path, str(item)
            yield from parts_of(item, f"{path}.{key}".lstrip("."))


def renamed(value: Any, rename: Callable[[str], str]) -> Any:
    """A part of a configuration with every `_target_` renamed, at any depth."""
    if isinstance(value, list):
        return [renamed(item, rename) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: rename(str(item)) if key == "_target_" else renamed(item, rename) for key, item in value.items()}


def is_foreign(config: Any) -> bool:
    """Whether any `_target_` in a configuration, or in a part of one, is user code."""
    return any(not within(target, BUILT_IN) for _, target in parts_of(config))


def not_found(config: Config) -> list[str]:
    """The user packages that the `_target_`s of a configuration need and Python cannot find."""
    needed = {target.partition(".")[0] for _, target in parts_of(config)}
    user = {package.partition(".")[0] for package in config.user}
    return sorted(package for package in needed & user if find(package) is None)
