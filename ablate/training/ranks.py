"""The processes, called ranks, that train one run together, each on its own device.

Every rank holds the whole model, and computes its share of the parts of a batch and of an evaluation.  Rank 0 also
holds the run: its lease, metrics and checkpoints.  Numbers are summed in an order that does not depend on how many
ranks there are.
"""

import contextlib
import datetime
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

from ablate.config.errors import first_line
from ablate.results.atomic import write_atomic

REACH = 45.0  # seconds for all ranks to find each other
LONGEST = datetime.timedelta(days=1)  # that ranks may wait for rank 0, which may wait for another host
BUCKET = 2**26  # bytes that are sent at a time, so that copies of them need little memory
POLL = 0.1  # seconds between attempts to find rank 0
T = TypeVar("T")


class RankLost(Exception):
    """Another process of the run cannot be reached, or has ended."""


class Ranks:
    """This process's rank, and the number of ranks; by default, a run's only process."""

    def __init__(self, rank: int = 0, count: int = 1, store: Any = None, messages: Any = None, tensors: Any = None):
        self.rank, self.count = rank, count
        self.store, self.messages, self.tensors = store, messages, tensors  # of torch.distributed

    def rows(self, total: int) -> tuple[int, int]:
        """The start and end of this rank's rows of a batch: a half of a half and so on, as parts are."""
        start, stop, rank, count = 0, total, self.rank, self.count
        while count > 1:
            middle, count = (start + stop + 1) // 2, count // 2
            start, stop, rank = (start, middle, rank) if rank < count else (middle, stop, rank - count)
        if start == stop:
            raise ValueError(f"a batch of {total} cannot be shared by train.devices={self.count}")
        return start, stop

    def most(self, values: list[int]) -> list[int]:
        """The largest of each of these numbers over all ranks."""
        if self.count == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.int32)
        self.talk(dist.all_reduce, tensor, dist.ReduceOp.MAX, self.messages)
        found: list[int] = tensor.tolist()
        return found

    def from_first(self, value: T) -> T:
        """The value that rank 0 has."""
        values = [value]
        self.talk(dist.broadcast_object_list, values, 0, self.messages)
        return values[0]

    def gather(self, found: list[T]) -> list[T]:
        """The items of all ranks, in the order of the ranks."""
        each: list[Any] = [found] * self.count
        self.talk(dist.all_gather_object, each, found, self.messages)
        return [item for of_rank in each for item in of_rank]

    def add(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their sums over all ranks, in a binary tree: (0 + 1) + (2 + 3).  Each rank adds up an
        equal share of the numbers."""
        for bucket in _take_tensors(tensors, BUCKET) if self.count > 1 else ():
            flat = _flatten_dense_tensors(bucket)
            flat = F.pad(flat, (0, -len(flat) % self.count))
            received = torch.empty_like(flat)
            self.talk(dist.all_to_all_single, received, flat, group=self.tensors)
            parts = list(received.chunk(self.count))
            while len(parts) > 1:
                parts = [first + second for first, second in zip(parts[::2], parts[1::2], strict=True)]
            self.talk(dist.all_gather, list(flat.chunk(self.count)), parts[0], group=self.tensors)
            for x, total in zip(bucket, _unflatten_dense_tensors(flat, bucket), strict=True):
                x.copy_(total)

    def talk(self, collective: Callable[..., Any], *given: Any, **named: Any) -> None:
        """Call a function of torch.distributed if there are other ranks.  Raises RankLost if they do not answer, with
        the error of the one that has ended, if it is known."""
        try:
            if self.count > 1:
                collective(*given, **named)
        except RuntimeError:
            words = "another process of the run has ended"
            with contextlib.suppress(RuntimeError):
                words = self.store.get("error").decode() if self.store.check(["error"]) else words
            raise RankLost(words) from None

    def tell(self, error: BaseException) -> None:
        """Leave this rank's error for the others, which will miss it."""
        with contextlib.suppress(RuntimeError):
            self.store.set("error", f"process {self.rank + 1}: {type(error).__name__}: {first_line(error)}")


ALONE = Ranks()


def join(rank: int, count: int, address: Path, device: str, is_local: bool) -> Ranks:
    """Connect to the other ranks of a run, over the file `address`: if all are children of one process, they exchange
    all that they need in it, without a port; otherwise it says where rank 0 is.  Raises RankLost."""
    limit = time.monotonic() + REACH
    try:
        store = dist.FileStore(str(address), count) if is_local else store_at(address, rank, count, limit)
        left = datetime.timedelta(seconds=max(1.0, limit - time.monotonic()))
        store.set_timeout(left)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=left)
        messages = dist.new_group(timeout=LONGEST)
        tensors = dist.new_group(backend="nccl") if device == "cuda" else messages
    except (RuntimeError, OSError) as error:
        where = f"process {rank + 1} of {count} could not reach the others within {REACH:g} s"
        raise RankLost(f"{where} ({first_line(error)})") from None
    if rank == 0 and not is_local:
        address.unlink(missing_ok=True)
    return Ranks(rank, count, store, messages, tensors)


def store_at(address: Path, rank: int, count: int, limit: float) -> Any:
    """The store of rank 0, which writes its host and port to a file.  Raises TimeoutError for others if there is none.
    They try again if they cannot connect, since the file may be that of an earlier attempt."""
    if rank == 0:
        store = dist.TCPStore("localhost", 0, count, is_master=True, wait_for_workers=False)
        write_atomic(address, json.dumps([socket.gethostname(), store.port]).encode())
        return store
    while time.monotonic() < limit:
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            host, port = json.loads(address.read_text())
            host = "localhost" if host == socket.gethostname() else host
            return dist.TCPStore(host, port, count, timeout=datetime.timedelta(seconds=3))
        time.sleep(POLL)
    raise TimeoutError("the first was not found")
