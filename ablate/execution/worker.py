"""The program that the pool starts: a parent whose children take orders over a channel, train, and answer."""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable

from ablate.execution.orders import Answer, Order, line, order_of
from ablate.execution.signals import LEAVE, DiskFull, end_after, requested
from ablate.execution.train_run import train_run
from ablate.execution.worker_parent import serve_jobs
from ablate.formatting.streams import prepare
from ablate.results.code_hash import code_of
from ablate.training.devices import settle


def main() -> None:
    """Be what the pool starts."""
    prepare(told=False)
    code_of({})  # read once for all children, which ask for it to know whether a run is the planned one
    serve_jobs(serve)


def serve(channel: socket.socket) -> None:
    """Train the runs that are ordered over a channel; its end, or SIGTERM, is the request to checkpoint and leave.

    A process that exceeds the grace period is killed; its run resumes from the last checkpoint.
    """
    settle()
    stop, own = threading.Event(), os.getpid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, requested(stop))
    end_after(stop, LEAVE)
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_orders, args=(channel, orders, stop), daemon=True).start()

    def stopped() -> bool:
        if os.getpid() != own:  # a copy that a component made of this process
            os._exit(1)
        return stop.is_set()

    while text := orders.get():
        answer = handle_order(order_of(text), stopped)
        channel.sendall(line(answer).encode())
        if answer.leaving:
            break


def handle_order(order: Order, stopped: Callable[[], bool]) -> Answer:
    """Train one run: its status, the file for which there was no space, and whether this process must not go on."""
    status, full = "failed", ""
    try:
        status = train_run(order, stopped)
    except DiskFull as error:
        full = str(error.file)
    except OSError as error:  # a folder in place of a lock say; what training itself raises is in the run's result
        print(
            f"ablate: {error.filename2 or error.filename or order.path} cannot be used: {error.strerror or error}",
            file=sys.stderr,
        )
    # Who knows what a failed run has left behind; and who was told to stop has no more to do.
    return Answer(status=status, full=full, leaving=status == "failed" or stopped())


def read_orders(channel: socket.socket, orders: queue.Queue[str], stop: threading.Event) -> None:
    """Queue what comes over a channel until it ends, which is a request to stop."""
    with channel.makefile() as lines:
        for text in lines:
            orders.put(text)
    stop.set()
    orders.put("")
