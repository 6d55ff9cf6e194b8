"""Forward and backward passes as CUDA graphs: one launch instead of hundreds, for which a small model waits."""

import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ablate.config.errors import first_line
from ablate.config.schema import Train
from ablate.training.devices import is_out_of_memory, to_device

Losses = dict[str, Tensor]
Pass = Callable[[Mapping[str, Tensor], Tensor, int], Losses]  # of inputs, targets, and the number of scored targets

WORTH = 8e12  # floating-point operations of a step; larger ones keep a GPU busy by themselves, and need its memory
UNCAPTURED = 2  # first passes of a shape, which are not replayed
SHAPES = 2  # of batches that are captured; each holds the memory of its activations


def available(device: torch.device) -> bool:
    """Whether a device has graphs."""
    return device.type == "cuda"


def captures(config: Train, weights: int, positions: int) -> bool:
    """Whether steps of so many positions by so many weights are captured where that is possible."""
    if config.parts > 1:
        return False
    if config.capture == "auto":
        return 6 * weights * positions < WORTH
    return bool(config.capture)


class Graph(NamedTuple):
    """A recorded pass: the tensors that it reads and writes, and the function that runs it again."""

    inputs: dict[str, Tensor]
    targets: Tensor
    losses: Losses
    gradients: list[Tensor | None]
    replay: Callable[[], None]


class CapturedPasses:
    """`passes(inputs, targets, scored)` sets the gradients and returns the losses of a batch, exactly as `compute`
    does, which it runs as a CUDA graph from the third batch of a shape on.

    The first batch compiles and sets up what is set up once.  The second shows whether the pass waits for the GPU,
    which a graph cannot; `warn` is then called with a sentence, and nothing is captured.
    """

    def __init__(self, model: nn.Module, compute: Pass, warn: Callable[[str], None], config: Train):
        self.model = model
        self.compute = compute
        self.warn = warn
        self.config = config
        self.device = next(model.parameters()).device
        self.weights = sum(parameter.numel() for parameter in model.parameters())
        self.batches_of_shape: dict[Hashable, int] = {}
        self.graphs: dict[Hashable, Graph] = {}
        self.waits = False
        self.has_terms = True

    def __call__(self, inputs: Mapping[str, Tensor], targets: Tensor, scored: int) -> Losses:
        shape = self.shape_of(inputs, targets, scored)
        graph = self.graphs.get(shape)
        if graph:
            for name, x in inputs.items():
                fill(graph.inputs[name], x)
            fill(graph.targets, targets)
            return self.replayed(graph)
        batches = self.batches_of_shape.get(shape, 0) + 1
        device_inputs = {name: to_device(x, self.device) for name, x in inputs.items()}
        device_targets = to_device(targets, self.device)
        positions = max(x.numel() for x in device_inputs.values())
        possible = not self.waits and len(self.graphs) < SHAPES and captures(self.config, self.weights, positions)
        if batches == 1 or not possible:
            losses = self.compute(device_inputs, device_targets, scored)
            self.has_terms = len(losses) > 1
            self.batches_of_shape[self.shape_of(inputs, targets, scored)] = batches
            return losses
        self.batches_of_shape[shape] = batches
        if batches == 2:
            return self.tried(device_inputs, device_targets, scored)
        recorded = capture_pass(self.model, lambda: self.compute(device_inputs, device_targets, scored))
        self.graphs[shape] = Graph(device_inputs, device_targets, *recorded)
        return self.replayed(self.graphs[shape])

    def shape_of(self, inputs: Mapping[str, Tensor], targets: Tensor, scored: int) -> Hashable:
        """What a graph holds as constants: shapes, and the number of scored targets, by which terms are divided."""
        shapes = [(name, x.shape) for name, x in inputs.items()]
        return (scored if self.has_terms else 0, targets.shape, *shapes)

    def tried(self, inputs: dict[str, Tensor], targets: Tensor, scored: int) -> Losses:
        """Compute so that waiting for the GPU is an error; after that error, compute again."""
        before = [buffer.clone() for buffer in self.model.buffers()]
        try:
            return never_waiting(lambda: self.compute(inputs, targets, scored))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self.waits = True
            reason = first_line(error)
        self.warn(f"train.capture: its steps wait for the GPU and cannot be CUDA graphs ({reason})")
        self.model.zero_grad(set_to_none=True)
        for buffer, value in zip(self.model.buffers(), before, strict=True):
            buffer.copy_(value)
        return self.compute(inputs, targets, scored)

    def replayed(self, graph: Graph) -> Losses:
        """Run a recorded pass; its losses are copied, since it may run again within a step."""
        graph.replay()
        for parameter, gradient in zip(self.model.parameters(), graph.gradients, strict=True):
            parameter.grad = gradient
        return {name: value.clone() for name, value in graph.losses.items()}


def fill(target: Tensor, x: Tensor) -> None:
    """Copy a tensor of the CPU to one that a graph reads, without waiting."""
    target.copy_(x.pin_memory() if target.is_cuda else x, non_blocking=True)


def never_waiting(compute: Callable[[], Losses]) -> Losses:
    """Compute on a stream of its own, as before a capture.  Raises RuntimeError where it waits for the GPU."""
    stream = torch.cuda.Stream()
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode is called a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            return compute()
    finally:
        torch.cuda.set_sync_debug_mode("default")
        current.wait_stream(stream)


def capture_pass(
    model: nn.Module, compute: Callable[[], Losses]
) -> tuple[Losses, list[Tensor | None], Callable[[], None]]:
    """Capture a forward and backward pass as a CUDA graph; the model's gradients must be None, so that it makes them.

    Returns the tensors that each replay overwrites, losses by name and a gradient per parameter (None if unused), and
    the replay.  Nothing is computed before the first replay.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = compute()
    return losses, [parameter.grad for parameter in model.parameters()], graph.replay
