"""The processes, called ranks, that train one run together, each on its own device.

Every rank holds the whole model and computes its share of the parts of each batch; gradients and losses are added up
by torch's all-reduce.  Rank 0 also holds the run: its lease, metrics and checkpoints.
"""

import contextlib
import datetime
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ablate.config.errors import first_line
from ablate.runs.files import write_atomic

CONNECT_SECONDS = 45.0  # for all ranks to find each other
MESSAGE_TIMEOUT = datetime.timedelta(days=1)  # ranks wait for rank 0, which may wait for another host
POLL_SECONDS = 0.1  # between attempts to find rank 0
T = TypeVar("T")


class RankLost(Exception):
    """Another process of the run cannot be reached, or has ended."""


class Ranks:
    """This process's rank, and the number of ranks; by default, a run's only process."""

    def __init__(
        self, rank: int = 0, count: int = 1, store: Any = None, message_group: Any = None, tensor_group: Any = None
    ):
        self.rank = rank
        self.count = count
        self.store = store
        self.message_group = message_group  # of numbers and objects on the CPU
        self.tensor_group = tensor_group  # of gradients and losses

    def add(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their sums over all ranks.  Raises RankLost."""
        with self.noticing_lost():
            for tensor in tensors:
                dist.all_reduce(tensor, group=self.tensor_group)

    def any(self, flags: list[bool]) -> list[bool]:
        """Which of these flags are set on at least one rank.  Raises RankLost."""
        if self.count == 1:
            return flags
        numbers = torch.tensor(flags, dtype=torch.int32)
        with self.noticing_lost():
            dist.all_reduce(numbers, dist.ReduceOp.MAX, self.message_group)
        return [number > 0 for number in numbers.tolist()]

    def from_first(self, value: T) -> T:
        """The value that rank 0 has.  Raises RankLost."""
        if self.count == 1:
            return value
        values = [value]
        with self.noticing_lost():
            dist.broadcast_object_list(values, 0, self.message_group)
        return values[0]

    @contextlib.contextmanager
    def noticing_lost(self) -> Iterator[None]:
        """Raise RankLost if the others do not answer, with the error of the one that has ended if it left one."""
        try:
            yield
        except RuntimeError:
            message = "another process of the run has ended"
            with contextlib.suppress(RuntimeError):
                if self.store.check(["error"]):
                    message = self.store.get("error").decode()
            raise RankLost(message) from None

    def leave_error(self, error: BaseException) -> None:
        """Leave this rank's error for the others, which will miss it."""
        with contextlib.suppress(RuntimeError):
            self.store.set("error", f"process {self.rank + 1}: {type(error).__name__}: {first_line(error)}")


ALONE = Ranks()


def join(rank: int, count: int, address: Path, device: str, is_local: bool) -> Ranks:
    """Connect to the other ranks of a run over the file `address`.  Raises RankLost.

    If all ranks run on this machine (`is_local`), the file is the store over which they connect, and no port is opened;
    otherwise it only holds the host and port of rank 0's store, and rank 0 deletes it once all have joined.
    """
    deadline = time.monotonic() + CONNECT_SECONDS
    try:
        store = dist.FileStore(str(address), count) if is_local else store_at(address, rank, count, deadline)
        remaining = datetime.timedelta(seconds=max(1.0, deadline - time.monotonic()))
        store.set_timeout(remaining)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=remaining)
        message_group = dist.new_group(timeout=MESSAGE_TIMEOUT)
        tensor_group = dist.new_group(backend="nccl") if device == "cuda" else message_group
    except (RuntimeError, OSError) as error:
        reason = f"process {rank + 1} of {count} could not reach the others within {CONNECT_SECONDS:g} s"
        raise RankLost(f"{reason} ({first_line(error)})") from None
    if rank == 0 and not is_local:
        address.unlink(missing_ok=True)
    return Ranks(rank, count, store, message_group, tensor_group)


def store_at(address: Path, rank: int, count: int, deadline: float) -> Any:
    """The store of rank 0, which writes its host and port to a file.

    Others try again if they cannot connect, since the file may be that of an earlier attempt.  Raises TimeoutError.
    """
    if rank == 0:
        store = dist.TCPStore("localhost", 0, count, is_master=True, wait_for_workers=False)
        write_atomic(address, json.dumps([socket.gethostname(), store.port]).encode())
        return store
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            host, port = json.loads(address.read_text())
            if host == socket.gethostname():
                host = "localhost"
            return dist.TCPStore(host, port, count, timeout=datetime.timedelta(seconds=3))
        time.sleep(POLL_SECONDS)
    raise TimeoutError("the first was not found")
