"""Data are the same in every process: with other hashes of strings, an empty cache and another number of threads."""

import json
import os
import subprocess
import sys

from conftest import ROOT
from data_digests import digests

SCRIPT = """
import json, sys
sys.path[:] = {path!r}
from data_digests import digests
print(json.dumps(digests()))
"""


def test_batches_and_tokens_are_the_same_in_every_process(tmp_path, monkeypatch):
    more = {"PYTHONHASHSEED": "77", "ABLATE_CACHE": str(tmp_path / "there"), "PYTHONPATH": str(ROOT)}
    more["RAYON_NUM_THREADS"] = str(1 + (os.cpu_count() or 1))
    script = SCRIPT.format(path=sys.path)
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | more, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "here"))
    assert json.loads(done.stdout) == json.loads(json.dumps(digests()))
