"""Where programs run on this machine: one at a time, or one for each GPU, or as many as the user says."""

import contextlib
import os
import subprocess


def places(parallel: int | None) -> list[dict[str, str]]:
    """The environment of each program that runs at a time."""
    names = gpus()
    count = parallel or max(1, len(names))
    if names:
        return [{"CUDA_VISIBLE_DEVICES": names[i % len(names)]} for i in range(count)]
    return [{} for _ in range(count)]


def gpus() -> list[str]:
    """The ids of the GPUs that this process may use, asked of their driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True)
        return [str(i) for i, line in enumerate(done.stdout.splitlines()) if line.startswith("GPU ")]
    return []
