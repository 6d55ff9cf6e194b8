"""NVIDIA's multi-process service, started and ended with the workers; a script stands for its control program."""

import os

import pytest

from ablate.execution import mps

FAKE = """#!/bin/sh
if [ "$1" = "-f" ]; then
    echo "${CUDA_VISIBLE_DEVICES-all}" > "$SAID"
    while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.01; done
    echo ended >> "$SAID"
else
    read word; touch "$CUDA_MPS_PIPE_DIRECTORY/$word"
fi
"""
SHARED = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in ("0", "1", "0")]


@pytest.fixture
def said(tmp_path, monkeypatch):
    """What the control program wrote."""
    program = tmp_path / "bin" / mps.CONTROL
    program.parent.mkdir(exist_ok=True)
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setattr(mps, "RUNNING", tmp_path / "none")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return lambda: (tmp_path / "said").read_text().split() if (tmp_path / "said").exists() else []


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_workers_that_share_gpus_have_a_service_until_they_end(said, error):
    with pytest.raises(error) if error else mps.contextlib.nullcontext(), mps.service(SHARED) as workers:
        folder = workers[0][mps.PIPES]
        assert workers == [worker | {mps.PIPES: folder, mps.LOGS: folder} for worker in SHARED]
        while not said():
            pass
        if error:
            raise error
    assert said() == ["all", "ended"] and not os.path.exists(folder)


def test_a_folder_that_its_server_still_writes_to_ends_no_study(said, monkeypatch, tmp_path):
    def refuse(*given, **named):
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(mps.tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch, mps.service(SHARED):
        while not said():
            pass
        patch.setattr(os, "rmdir", refuse)
    assert said() == ["all", "ended"]


@pytest.mark.parametrize("why", ["one each", "no GPU", "not installed", "running", "the user's own"])
def test_without_need_or_means_workers_stay_as_they_are(said, why, monkeypatch, tmp_path):
    given = {"one each": SHARED[:2], "no GPU": [{}, {}]}.get(why, SHARED)
    if why == "not installed":
        monkeypatch.setenv("PATH", "/nowhere")
    if why == "running":
        monkeypatch.setattr(mps, "RUNNING", tmp_path)
    if why == "the user's own":
        monkeypatch.setenv(mps.PIPES, "/elsewhere")
    with mps.service(given) as workers:
        assert workers is given
    assert said() == []
