"""Command lines from a grammar, odd values and hostile folders of variants among them, planned in this process.

    python benchmarks/fuzz_command_lines.py [COUNT] [SEED]

Prints how many were planned and refused, and each that raised something else, took longer than `LONGEST`, was told in
more than a line, or executed what lies in a folder of variants.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 30  # seconds
VALUES = "1 0 -1 2 3 1e-3 0.5 1e400 nan inf true false null ln rms mlp '' [] {} [1,2] [1,[2,{a:b}]] {a:b} a.b ../x "
VALUES += "${oc.env:HOME} ${model.dim} 99999999999999999999 9e999 0x10 1_000 range(1,4) range(1,100) glob(*) "
VALUES += "choice(1,2) sort(3,1) 1,2 ln,rms 'a,b' \\, ( ) ] é − $( `id` %s ??? !!python/name:os.system "
YAMLS = (
    "a: [",
    "&a [*a]",
    "- 1",
    "3",
    "",
    "a: !!pairs [b: c]",
    "eps: ${oc.env:HOME}",
    "? {a: 1}\n: 2",
    "\x00",
    "{" * 900,
)
YAMLS += ("# @package _global_\nresults_dir: /", "# @package _global_\nhydra: {run: {dir: /}}", "defaults: [../x]")
YAMLS += ("_target_: canary.Norm\n_partial_: true", "_target_: os.system", "# @package _global_\nuser: [canary]")
YAMLS += ("_target_: ablate.model.norm.RMSNorm\n_partial_: true\neps: {a: [1]}\n", "defaults: [ln]\neps: 1e-3")


class Late(BaseException):
    """A plan that took too long."""


def main(count: int = 3000, seed: int = 0) -> int:
    """Plan so many command lines; 1 where one of them did what none may."""
    from ablate.config.groups import groups
    from ablate.config.schema import KEYS, SECTIONS

    known = groups()
    keys = [*KEYS, *(f"{name}.{key}" for name, kind in SECTIONS.items() for key in kind.__dataclass_fields__)]
    keys += [
        "norm.eps",
        "ffn.mult",
        "attention.window",
        "data.path",
        "norm._target_",
        "hydra.mode",
        "nothing",
        "hydra/launcher",
    ]
    draw, found = random.Random(seed), collections.Counter[str]()
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("canary.py").write_text("open('executed', 'w')\nclass Norm: pass\n")
        sys.path.append(place)
        for number in range(count):
            words, folder = line(draw, keys, known), None
            if draw.random() < 0.3:
                folder = str(variants(draw, Path(place) / f"conf{number}", words))
            what = outcome(words, folder)
            what = "executed" if Path("executed").exists() else what
            found[what.partition(":")[0]] += 1
            if what not in ("planned", "refused"):
                print(
                    what,
                    words,
                    *[file.read_text()[:99] for file in Path(folder or "none").rglob("*.yaml")],
                    sep="\n  ",
                    flush=True,
                )
                Path("executed").unlink(missing_ok=True)
    print(f"{count} command lines, seed {seed}:", ", ".join(f"{number} {name}" for name, number in found.items()))
    return int(found.keys() > {"planned", "refused"})


def line(draw: random.Random, keys: list[str], known: dict[str, dict[str, Path]]) -> list[str]:
    """Up to five words, each a group with its variants, a key with an odd value, or neither."""
    words = ["dry_run=true"]
    for _ in range(draw.randint(1, 5)):
        group = draw.choice([*known])
        variants = ",".join(draw.choices([*known[group]], k=draw.randint(1, 2)))
        word = f"{draw.choice(['', '', '', '+', '~'])}{draw.choice(keys)}={draw.choice(VALUES.split())}"
        words.append(
            draw.choice([word, word, f"{'+' * (group == 'preset')}{group}={variants}", draw.choice(VALUES.split())])
        )
    return words


def variants(draw: random.Random, folder: Path, words: list[str]) -> Path:
    """A folder with an odd file, which a word chooses."""
    kind = draw.choice(["norm", "ffn", "preset", "track", "data", "experiment"])
    (folder / kind).mkdir(parents=True)
    (folder / kind / "odd.yaml").write_text(draw.choice(YAMLS))
    words.append(f"{'+' * (kind in ('preset', 'experiment'))}{kind}=odd")
    return folder


def outcome(words: list[str], folder: str | None) -> str:
    """What became of one command line."""
    from ablate.config.errors import PlanError
    from ablate.planning.plan import plan_study

    def late(*_: Any) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            plan_study(tuple(words), folder)
    except PlanError as error:
        return "several lines" if any("\n" in str(each) for each in error.problems) else "refused"
    except Late:
        return "hang"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
    return "planned"


if __name__ == "__main__":
    os.environ["WANDB_MODE"] = "offline"
    sys.path[:0] = [str(ROOT)]
    sys.exit(main(*map(int, sys.argv[1:])))
