"""Inputs from a grammar with a fixed seed, in process: none ends in a traceback, hangs or has anything executed.

    python benchmarks/fuzz.py [command_lines|study_files|figures_yaml|stamps ...] [--seed N] [--only COUNT] [--first N]

Each part prints how many inputs were accepted and refused in one line, and names each that was neither.  A study that
is accepted is planned twice: both plans are the same.
"""

import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from common import ROOT

sys.path += [str(ROOT / "tests" / "helpers")]
SECONDS = 60  # after which an input counts as one that hangs
SECRET = "hunter2"  # what no message may hold: it stands in the environment

Rng = random.Random
Try = Callable[[Rng, Path], str]  # makes an input in a folder and tries it: what was said, or "" where it was accepted


class Hangs(BaseException):
    """An input that takes too long."""


def late(*_: Any) -> None:
    """End what takes too long."""
    raise Hangs


# ---- values


def scalar(r: Rng) -> str:
    """A scalar of YAML, most of them odd."""
    canary = Path.cwd() / "canary"
    odd = ["ln", "rms", "1", "0", "-1", "1e-3", "1e999", ".nan", ".inf", "true", "null", "~", "''", '"a b"', "no", "[]"]
    odd += ["{}", "2020-01-01", "1:30:00", "0x" + "f" * 400, "9" * r.choice((20, 5000)), "????", "'a: b'", "=", "<<"]
    odd += ["${oc.env:SECRET}", "${model.dim}", "${model}", "${a", "$(touch canary)", "'; touch canary'", "{{7*7}}"]
    odd += ["!!pairs [16: x]", "!!omap [a: b]", "!!set {a}", "!!binary aGk=", "!!timestamp 2020-01-01", "!mine x", "*a"]
    odd += [f"!!python/object/apply:os.mknod ['{canary}']", "!!python/name:os.system x", "range(1,1e9)", "glob(*)"]
    odd += ["/dev/zero", "../../../etc/passwd", "'% @ \\n # |'", '"\\u202e"', '"\\e[31m"', '"\\0"', "é", "a,b"]
    return r.choice([*odd, "[" * 900 + "]" * 900])


def value(r: Rng, depth: int = 0) -> str:
    """A value of YAML in one line: a scalar, a list or a mapping of values."""
    kind = r.random() if depth < 3 else 0
    if kind < 0.6:
        return scalar(r)
    inner = [value(r, depth + 1) for _ in range(r.randint(0, 3))]
    if kind < 0.8:
        return f"[{', '.join(inner)}]"
    return "{" + ", ".join(f"{r.choice(('a', 'norm', 'ffn', 'less', '1', '~', '[x]'))}: {each}" for each in inner) + "}"


def document(r: Rng, keys: list[str], good: dict[str, list[str]]) -> str:
    """A file of YAML: some keys with values that fit, some with odd ones."""
    lines = []
    for key in r.sample(keys, r.randint(1, min(5, len(keys)))):
        lines.append(f"{key}: {r.choice(good[key]) if key in good and r.random() < 0.5 else value(r)}")
    if r.random() < 0.05:
        lines.append("bomb: &a0 [x, x]")
        lines += [f"b{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 30)]
    if r.random() < 0.05:
        lines.append(r.choice(["\t- x", "}{", "? ? ?", "---\na: 1\n---\nb: 2", "\x00", "\ufeff", "&a [*a]"]))
    return "\n".join(lines) + "\n"


# ---- parts

SMALL = ("model.dim=16", "model.layers=1", "dry_run=true")
ODD_WORDS = "1 0 -1 2 3 1e-3 0.5 1e400 nan inf true false null ln rms mlp '' [] {} [1,2] [1,[2,{a:b}]] {a:b} a.b ../x "
ODD_WORDS += "${oc.env:HOME} ${model.dim} 99999999999999999999 9e999 0x10 1_000 range(1,4) range(1,1000000000) glob(*) "
ODD_WORDS += "choice(1,2) sort(3,1) 1,2 ln,rms 'a,b' \\, ( ) ] é − $( `id` %s ??? !!python/name:os.system "
ODD_VARIANTS = [
    "a: [",
    "&a [*a]",
    "- 1",
    "3",
    "",
    "a: !!pairs [b: c]",
    "eps: ${oc.env:SECRET}",
    "? {a: 1}\n: 2",
    "\x00",
]
ODD_VARIANTS += ["{" * 900, "# @package _global_\nresults_dir: /", "# @package _global_\nhydra: {run: {dir: /}}"]
ODD_VARIANTS += ["defaults: [../x]", "_target_: loaded.Norm\n_partial_: true", "_target_: os.system", "defaults: [ln]"]
ODD_VARIANTS += ["# @package _global_\nuser: [loaded]", "_target_: ablate.model.norm.RMSNorm\neps: {a: [1]}"]


def planned(words: Sequence[str], folder: Path) -> str:
    """Plan a command line twice: what it is refused for, or "" where it is accepted; each problem is one line."""
    from ablate.config.errors import PlanError
    from ablate.planning.plan import plan_study

    try:
        with redirect_stderr(StringIO()):
            plans = (plan_study(words, str(folder)).manifest for _ in range(2))
            first, second = ((manifest.cells, manifest.runs) for manifest in plans)
    except PlanError as error:
        return "\n".join(str(problem).replace("\n", "\n\n") for problem in error.problems)
    assert first == second, "two plans of the same words differ"
    return ""


def command_lines() -> Try:
    """Up to five words: groups with variants, keys with odd values, and a folder of variants with an odd file."""
    from ablate.config.groups import groups
    from ablate.config.schema import KEYS, SECTIONS

    known = groups()
    keys = [*KEYS, *(f"{name}.{field.name}" for name, kind in SECTIONS.items() for field in dataclasses.fields(kind))]
    keys += [
        "norm.eps",
        "ffn.mult",
        "attention.window",
        "data.path",
        "norm._target_",
        "hydra.mode",
        "hydra/launcher",
        "x",
    ]

    def word(r: Rng) -> str:
        kind, group = r.random(), r.choice([*known])
        if kind < 0.1:
            return r.choice(ODD_WORDS.split())
        if kind < 0.6:
            return f"{'+' * (group == 'preset')}{group}={','.join(r.choices([*known[group]], k=r.randint(1, 2)))}"
        return f"{r.choice(['', '', '', '+', '~'])}{r.choice(keys)}={r.choice(ODD_WORDS.split())}"

    def attempt(r: Rng, folder: Path) -> str:
        words = [*SMALL, *(word(r) for _ in range(r.choice((1, 1, 2, 3, 5))))]
        (folder / "loaded.py").write_text("open('canary', 'w')\n")
        if r.random() < 0.3:
            kind = r.choice(["norm", "ffn", "preset", "track", "data", "experiment"])
            shutil.rmtree(folder / "variants", ignore_errors=True)
            (folder / "variants" / kind).mkdir(parents=True)
            (folder / "variants" / kind / "odd.yaml").write_text(r.choice(ODD_VARIANTS))
            return planned([*words, f"{'+' * (kind in ('preset', 'experiment'))}{kind}=odd"], folder / "variants")
        return planned(words, folder)

    return attempt


def study_files() -> Try:
    """A study file, planned by `+experiment=`."""
    good = {
        "study": ["mine"], "question": ["Does it help?"], "scale": ["tiny"], "norm": ["rms"], "seeds": ["1", "[3, 7]"],
        "factors": ["{norm: [ln, rms]}", "{model.dim: [16, 32]}"], "design": ["grid"], "margin": ["0.01"],
        "claims": ["{a: {less: [{norm: rms}, {norm: ln}]}}"], "match": ["params"], "model": ["{layers: 1, dim: 16}"],
        "optim": ["{lr: 1e-3}"], "train": ["{steps: 4}"], "data": ["stdlib"], "tiers": ["{gpu: {seeds: 2}}"],
    }  # fmt: skip
    keys = [*good, "eval", "at", "tune", "zip", "published", "figure", "user", "results_dir"]
    keys += ["hydra", "defaults", "preset", "attention", "position", "optim.lr", "eval.lengths", "track", "x"]

    def attempt(r: Rng, folder: Path) -> str:
        (folder / "experiment").mkdir(exist_ok=True)
        (folder / "experiment" / "mine.yaml").write_text(document(r, keys, good))
        return planned(["+experiment=mine", *SMALL], folder)

    return attempt


def study(folder: Path) -> Any:
    """A small study as a sweep leaves it, and its case."""
    from fake_studies import fabricate

    from ablate.runs.study import load_study
    from analysis.case import case_of

    if not (folder / "studies").exists():
        fabricate(folder, {"ffn": ["mlp", "swiglu"], "norm": ["ln", "rms"]})
    (folder / "figures" / "fabricated").mkdir(parents=True, exist_ok=True)
    return case_of(load_study(folder, "fabricated"), folder / "figures" / "fabricated")


def figures_yaml() -> Try:
    """A figures.yaml beside a study's figures."""
    from ablate.config.errors import Refused
    from analysis.case.figures_yaml import edits_of

    good = {
        "width": ["single", "4.5"], "labels": ["{swiglu: SwiGLU}"],
        "order": ["{ffn: [swiglu, mlp]}"], "colours": ["{ffn: {mlp: teal}}"],
        "subset": ["{figures: [effects]}", "{levels: {norm: [ln]}}"],
    }  # fmt: skip
    manifests: list[Any] = []

    def attempt(r: Rng, folder: Path) -> str:
        manifests.extend([study(folder).study.manifest] * (not manifests))
        (folder / "figures.yaml").write_text(document(r, [*good, "x", "'[a]'", "1"], good))
        try:
            edits_of(folder / "figures.yaml", manifests[0], ["effects", "seeds"])
        except Refused as error:
            return str(error)
        return ""

    return attempt


def stamps() -> Try:
    """A figure with a forged stamp, given to `ablate analyse verify`."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    from analysis import figures
    from analysis.cli import verify
    from analysis.figures import stamp
    from analysis.figures.kind import page_of

    known: list[stamp.Stamp] = []
    odd = [
        "",
        ":",
        "a:b",
        ",,",
        "'",
        "--help",
        "ablate analyse --runs /dev/zero",
        "ablate analyse --runs 'x",
        "\x1b[2J",
    ]
    odd += [
        "../../etc/passwd",
        "effects",
        "seeds",
        "fabricated",
        "9" * 5000,
        "${x}",
        "/dev/zero",
        "$(touch canary)",
        "é",
    ]

    def attempt(r: Rng, folder: Path) -> str:
        if not known:
            case = study(folder)
            edits = figures.edits(case)
            table = figures.tables(case, edits)["effects"]
            known.append(stamp.stamp_of("effects", table, page_of(case.study.manifest, edits), case.study))
        said: dict[str, Any] = dict(known[0])
        for key in r.sample([*said, "source", "content", "x"], r.randint(0, 3)):
            said[key] = r.choice([r.choice(odd), r.choice(odd), r.choice([None, 7, ["x"], {"a": "b"}, True])])
        text = stamp.MARK * (r.random() < 0.95) + json.dumps(said)[: r.choice([None, None, None, 40])]
        info = PngInfo()
        info.add_text("Keywords", r.choice([text, text, text, text, stamp.MARK + "[" * 5000]))
        Image.new("RGB", (2, 2)).save(folder / "forged.png", pnginfo=info)
        if r.random() < 0.1:
            data = bytearray((folder / "forged.png").read_bytes())
            data[r.randrange(len(data))] ^= r.randrange(1, 256)
            (folder / "forged.png").write_bytes(data)
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = verify.main([str(folder / "forged.png"), "--results-dir", str(folder)])
        lines = (out.getvalue() + err.getvalue()).strip()
        return lines if code else ""

    return attempt


PARTS: dict[str, tuple[Callable[[], Try], int]] = {
    "command_lines": (command_lines, 3000),
    "study_files": (study_files, 500),
    "figures_yaml": (figures_yaml, 300),
    "stamps": (stamps, 300),
}


def outcome(attempt: Try, r: Rng, folder: Path) -> tuple[str, str]:
    """What became of an input, in a word, and what was said."""
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        said = attempt(r, folder)
    except Hangs:
        return "hangs", ""
    except SystemExit as end:
        return "ended by itself", str(end.code)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if SECRET in said:
        return "secret told", said
    acts = any(ord(char) < 32 and char != "\n" for char in said)
    return ("accepted" if not said else "refused oddly" if "\n\n" in said or acts else "refused"), said


def tried(name: str, seed: int, numbers: range, place: Path) -> Counter[str]:
    """What became of these inputs of a part, tried in an empty folder; each that is neither is printed."""
    attempt, found = PARTS[name][0](), Counter[str]()
    with chdir(place), patch.dict(os.environ, SECRET=SECRET), patch.object(sys, "path", [*sys.path, str(place)]):
        for number in numbers:
            ended, said = outcome(attempt, random.Random(f"{seed} {name} {number}"), place)
            if canaries := [*place.rglob("canary")]:
                ended = "executed"
                canaries[0].unlink()
            found[ended] += 1
            if ended not in ("accepted", "refused"):
                print(f"{name} {number}: {ended} {said!r}", flush=True)
    return found


def main() -> int:
    """Try the parts; 1 where an input was neither accepted nor refused, or something was executed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="inputs of each part")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    given = parser.parse_args()
    os.environ["WANDB_MODE"] = "offline"
    bad = 0
    for name in given.parts:
        count = given.only or PARTS[name][1]
        with tempfile.TemporaryDirectory() as place:
            found = tried(name, given.seed, range(given.first, given.first + count), Path(place))
        bad += found.total() - found["accepted"] - found["refused"]
        told = ", ".join(f"{many} {what}" for what, many in sorted(found.items()))
        print(f"{name}: {count} inputs: {told}", flush=True)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
