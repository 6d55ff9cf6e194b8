"""How far the words of a command line travel: files of `ablate/` that receive them, and calls that carry them back up.

    .venv/bin/python benchmarks/words_path.py       # a dry run, then a tiny sweep

The command runs in this process under `sys.setprofile` (other threads too); worker processes receive runs, not words.
A *word* is a string of the command line, or one that sets a single key of it: of `norm=ln,rms` also `norm=rms`.  A
function *receives words* if, when it is called, an argument or a variable it closes over is a word or a list, tuple,
set or dict that holds one, up to three deep.  Lambdas and generators are functions.
(a) A file is counted once any function in it receives words.
(b) A call goes *up* if the function receives words, and its package comes later in ORDER than that of the nearest
function of `ablate/` below it on the stack; each pair of functions is counted once.
Both are counted again with words inside objects of ablate and argparse, up to four attributes deep, except in `papers`,
which lists citations by variant.
"""

import collections
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import ablate
from ablate.cli.main import command

ROOT = str(Path(ablate.__file__).parent)
ORDER = "formatting config results model data training evidence execution planning api python cli"
PLAN = ["norm=ln,rms", "dry_run=true"]
SWEEP = ["norm=ln,rms", "scale=tiny", "data=copy", "seeds=2", "train.steps=4", "train.eval_every=4", "eval.tokens=640"]


class Recorder:
    """A profile function that remembers which functions received words, from whom, and whether inside an object."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.keys = {*words}, {word.partition("=")[0] for word in words}
        self.calls: dict[tuple[str, str], set[str]] = collections.defaultdict(set)  # (caller, called) -> what held them

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(ROOT):
            return
        # Locals at a call are the arguments and what is closed over; of a generator that is resumed, all its variables.
        if held := {found for each in [*frame.f_locals.values()] if (found := self.held(each, 3, 4))}:
            below = frame.f_back or frame
            while below.f_back and not below.f_code.co_filename.startswith(ROOT):
                below = below.f_back
            caller, called = (
                f"{at.co_filename[len(ROOT) + 1 :]}:{at.co_qualname}" for at in (below.f_code, frame.f_code)
            )
            self.calls[caller, called] |= held

    def held(self, value: object, deep: int, inside: int) -> str:
        """Where a value has a word: "", "plainly" or "inside" an object."""
        if isinstance(value, str):
            key, sign, _ = value.partition("=")
            return "plainly" * (value in self.words or bool(sign and key.lstrip("+") in self.keys and " " not in value))
        of_object = (
            inside and type(value).__module__.split(".")[0] in ("ablate", "argparse") and hasattr(value, "__dict__")
        )
        if of_object:
            value, deep, inside = vars(value), 4, inside - 1
        if not deep or not isinstance(value, list | tuple | set | frozenset | dict):
            return ""
        if isinstance(value, dict):
            value = [*value, *(each for key, each in value.items() if key != "papers")]
        found = max((self.held(each, deep - 1, inside) for each in value), default="")  # "plainly" before "inside"
        return "inside" if found and of_object else found


def floor(function: str) -> int:
    return ORDER.find(function.partition(":")[0].partition("/")[0].removesuffix(".py"))


for words in (PLAN, SWEEP):
    with tempfile.TemporaryDirectory() as folder:
        words = [*words, f"results_dir={folder}"]
        recorder = Recorder(words)
        for begin in (threading.setprofile, sys.setprofile):
            begin(recorder)
        command(["-m", *words])
        sys.setprofile(None)
    plain = {call: held for call, held in recorder.calls.items() if "plainly" in held}
    for how, calls in (("plainly", plain), ("inside objects as well", recorder.calls)):
        files = sorted({called.partition(":")[0] for _, called in calls})
        up = [call for call in calls if 0 <= floor(call[0]) < floor(call[1])]
        print(f"{' '.join(words[:3])} …, words {how}: {len(files)} files, {len(up)} calls up")
        print(*(f"  {file}" for file in files), *(f"  up: {one} -> {other}" for one, other in up), sep="\n")
