"""NVIDIA's multi-process service (MPS), which lets the kernels of several processes run on a GPU at the same time."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
RUNNING = Path("/tmp/nvidia-mps/control")  # of a service that the machine's owner has started
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
LIMIT = 10  # seconds for it to end


@contextlib.contextmanager
def service(workers: Sequence[dict[str, str]]) -> Iterator[Sequence[dict[str, str]]]:
    """Run the service as long as workers need it; gives their environments, which name it.

    They stay as they are if no two workers share a GPU, if there is no MPS here, or if one runs already.
    """
    gpus = [worker.get("CUDA_VISIBLE_DEVICES") for worker in workers]
    control = shutil.which(CONTROL) if len({*gpus}) < len(gpus) and None not in gpus else None
    if control is None or PIPES in os.environ or RUNNING.exists():
        yield workers
        return
    # Errors of its removal are ignored: the service's own processes may still write to it.
    with tempfile.TemporaryDirectory(prefix="ablate-mps-", ignore_cleanup_errors=True) as folder:
        clients = {PIPES: folder, LOGS: folder}
        # The service must see all GPUs, or it numbers them anew for its clients.
        given = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | clients
        none = subprocess.DEVNULL
        daemon = subprocess.Popen([control, "-f"], env=given, stdin=none, stdout=none, stderr=none, process_group=0)
        try:
            yield [worker | clients for worker in workers]
        finally:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run([control], input=b"quit\n", env=given, capture_output=True, timeout=LIMIT)
                daemon.wait(LIMIT)
            daemon.kill()
            daemon.wait()
