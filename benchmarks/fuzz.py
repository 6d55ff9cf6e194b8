"""Inputs from a grammar with a fixed seed, in process: none ends in a traceback, hangs or has anything executed.

    python benchmarks/fuzz.py [study_files|figures_yaml|stamps ...] [--seed N] [--only COUNT]

Each part prints how many inputs were accepted and refused in one line, and names each that was neither.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import ROOT

sys.path += [str(ROOT / "tests" / "helpers")]
SECONDS = 20  # after which an input counts as one that hangs
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


def study_files() -> Try:
    """A study file, planned by `+experiment=`."""
    from ablate.config.errors import PlanError
    from ablate.planning.plan import plan_study

    good = {
        "study": ["mine"], "question": ["Does it help?"], "scale": ["tiny"], "norm": ["rms"], "seeds": ["1", "[3, 7]"],
        "factors": ["{norm: [ln, rms]}", "{model.dim: [16, 32]}"], "design": ["grid"], "margin": ["0.01"],
        "claims": ["{a: {less: [{norm: rms}, {norm: ln}]}}"], "match": ["params"], "model": ["{layers: 1, dim: 16}"],
        "optim": ["{lr: 1e-3}"], "train": ["{steps: 4}"], "data": ["stdlib"], "tiers": ["{gpu: {seeds: 2}}"],
    }  # fmt: skip
    keys = [
        *good,
        "eval",
        "at",
        "tune",
        "zip",
        "reference",
        "hold",
        "published",
        "figure",
        "user",
        "results_dir",
        "hydra",
    ]
    keys += [
        "results_dir",
        "hydra",
        "defaults",
        "preset",
        "attention",
        "position",
        "optim.lr",
        "eval.lengths",
        "track",
        "x",
    ]

    def attempt(r: Rng, folder: Path) -> str:
        (folder / "experiment").mkdir(exist_ok=True)
        (folder / "experiment" / "mine.yaml").write_text(document(r, keys, good))
        try:
            plan_study(("+experiment=mine", "model.dim=16", "model.layers=1", "dry_run=true"), str(folder))
        except PlanError as error:
            return "\n".join(str(problem).replace("\n", "\n\n") for problem in error.problems[:1])
        return ""

    return attempt


def study(folder: Path) -> Any:
    """A small study as a sweep leaves it, and its case."""
    from fake_studies import fabricate

    from ablate.results.study import load_study
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
        "width": ["single", "4.5"], "caption": ["true"], "labels": ["{swiglu: SwiGLU}"],
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
    from contextlib import redirect_stderr, redirect_stdout
    from io import StringIO

    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    from analysis import figures
    from analysis.cli import verify
    from analysis.figures import stamp
    from analysis.figures.draw.page import page_of

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
    "study_files": (study_files, 500),
    "figures_yaml": (figures_yaml, 300),
    "stamps": (stamps, 300),
}


def outcome(attempt: Try, r: Rng, folder: Path) -> tuple[str, str]:
    """What became of an input, in a word, and what was said."""
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
    if SECRET in said:
        return "secret told", said
    acts = any(ord(char) < 32 and char != "\n" for char in said)
    return ("accepted" if not said else "refused oddly" if "\n\n" in said or acts else "refused"), said


def main() -> int:
    """Try the parts; 1 where an input was neither accepted nor refused, or something was executed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[*PARTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="inputs of each part")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, late)
    os.environ["SECRET"] = SECRET
    bad = 0
    for name in given.parts:
        make, count = PARTS[name]
        attempt, found = make(), Counter[str]()
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            for number in range(given.only or count):
                ended, said = outcome(attempt, random.Random(f"{given.seed} {name} {number}"), Path(place))
                found[ended] += 1
                if ended not in ("accepted", "refused"):
                    print(f"{name} {number}: {ended} {said!r}", flush=True)
            executed = sum(1 for _ in Path(place).rglob("canary"))
            os.chdir("/")
        bad += executed + sum(found.values()) - found["accepted"] - found["refused"]
        told = ", ".join(f"{many} {what}" for what, many in sorted(found.items()))
        print(f"{name}: {found.total()} inputs: {told}; {executed} executed", flush=True)
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
