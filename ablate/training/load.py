"""Runs loaded from disk, with their trained models: `ablate.load("results/runs/<cell>/s<seed>-<key>").model()`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ablate.config.errors import Corrupt, Unreadable
from ablate.config.files import read_plain
from ablate.config.schema import Config
from ablate.config.targets import allowed_packages
from ablate.config.typed_json import stored
from ablate.runs.folder import Row, Run, noted, verify
from ablate.runs.records import Result

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ablate.data.task import Task


class LoadedRun(NamedTuple):
    """A run: its resolved configuration (None of another program's run, whose files are in `out`), its logged steps,
    and its result (None if it has not ended).  The final metrics of the result include those computed later, such as
    metrics at other lengths."""

    run: Run
    config: Config | None
    metrics: list[Row]
    result: Result | None

    def __repr__(self) -> str:
        status = self.result.status if self.result else "not ended"
        return f"<run {self.run.path}: {status}, {len(self.metrics)} logged steps>"

    def model(self) -> nn.Module:
        """The trained model, on the CPU, in evaluation mode.  Raises FileNotFoundError if no weights were saved,
        `Corrupt` if they are damaged, and ValueError if they do not match the code, or the text, and thus its tokens,
        has changed since.
        """
        import torch

        from ablate.model.build import build_model

        config = self.own_config()
        if not self.run.weights_file.exists():
            reason = "it has not ended, was trained with keep=none, or they were removed since"
            raise FileNotFoundError(f"{self.run.path} has no weights: {reason}")
        task = self.task()
        with torch.device("cpu"):  # even if the caller has set another default
            model = build_model(config, task)
        state = model.state_dict()
        weights = self.weights()
        saved_names: dict[int, str] = {}  # tied parameters are saved once, under the first name
        for name, tensor in state.items():
            saved_names.setdefault(tensor.data_ptr(), name)
        mismatch = mismatch_of({saved_names[tensor.data_ptr()]: tensor for tensor in state.values()}, weights)
        if mismatch:
            advice = "it was trained by other code: go back to that, or give the study's command again"
            raise ValueError(f"{self.run.weights_file} {mismatch}; {advice}")
        model.load_state_dict({name: weights[saved_names[tensor.data_ptr()]] for name, tensor in state.items()})
        return model.eval()

    def own_config(self) -> Config:
        """Its configuration.  Raises ValueError for a run of another program."""
        if self.config is None:
            raise ValueError(f"{self.run.path} is of another program; what that saved is in {self.run.folder / 'out'}")
        return self.config

    def weights(self) -> dict[str, Tensor]:
        """The saved tensors, as training wrote them.  Raises `Corrupt`."""
        from safetensors import SafetensorError, safe_open

        file = self.run.weights_file
        try:
            if self.result:
                verify(self.result, file)
            if file.exists() and not file.is_file():
                raise Corrupt(f"{file} is no file", file)
            with safe_open(file, framework="pt") as saved:
                key = (saved.metadata() or {}).get("key", self.run.key)
                self.run.check_key(file, key)
                return {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
        except (Corrupt, SafetensorError) as error:
            damaged = error if isinstance(error, Corrupt) else Corrupt(f"{file} is damaged: {error}", file)
            damaged.add_note(f"rename it to {file.name}.corrupt, and the study's command trains the run again")
            raise damaged from None

    def task(self) -> Task:
        """The task that it was trained on.  Raises ValueError if the data have changed since, and ModuleNotFoundError
        if a package of the run's user components cannot be imported."""
        from ablate.runs.key import not_found

        config = self.own_config()
        missing = not_found(config.with_value("track", None))
        if missing:
            problem = f"the package {', '.join(missing)} that it was built from is not found here"
            raise ModuleNotFoundError(f"{problem}; run from the folder that holds it, or add that folder to PYTHONPATH")
        from ablate.data.task import build_task

        task: Task = build_task(config)
        if self.result and task.fingerprint != self.result.data_fingerprint:
            raise ValueError(f"{self.run.folder} was trained on other data than {task.name} is now")
        return task


def untrained(config: Config, seed: int) -> nn.Module:
    """The model with which a run begins, on the current default device."""
    from ablate.data.task import build_task
    from ablate.model.build import initialised_model
    from ablate.training.vectors import begin_with_vectors, initial_seed

    task = build_task(config)
    init_seed = initial_seed(config, seed)
    model = initialised_model(config, task, init_seed)
    begin_with_vectors(model, config, task, init_seed)
    return model


def mismatch_of(needed: dict[str, Tensor], saved: dict[str, Tensor]) -> str:
    """How saved tensors differ from those that a model needs; "" if they match."""
    for name, tensor in needed.items():
        if name not in saved:
            return f"has no {name}, which the model needs"
        if saved[name].shape != tensor.shape:
            return f"has {name} as {shape_text(saved[name])}, and the model needs {shape_text(tensor)}"
    return ""


def shape_text(tensor: Tensor) -> str:
    """A tensor's shape in words."""
    return " × ".join(map(str, tensor.shape)) or "a number"


def load_run(folder: Path, user: Iterable[str] = ()) -> LoadedRun:
    """Load a run's folder.  Raises FileNotFoundError if it holds no run, `Corrupt` if it is damaged, and ValueError for
    an invalid package in `user`."""
    folder = folder.resolve()
    packages = allowed_packages(user)
    run = Run(folder.parents[2], f"{folder.parent.name}/{folder.name}")
    result = run.result()
    if not result and not run.config_file.exists():
        raise FileNotFoundError(f"{folder} holds no run; name a folder results/runs/<cell>/s<seed>-<key>")
    if result:
        metrics_added_later, notes = noted(run.evaluation)
        if metrics_added_later:
            result = dataclasses.replace(result, final=result.final | metrics_added_later)
        for note in notes:
            warnings.warn(f"{note}; skipped", stacklevel=3)
    config = None
    if result is None or run.config_file.exists():  # else of another program: `result` checks the files of ours
        config = dataclasses.replace(read_config(run.config_file), user=packages)
    return LoadedRun(run, config, run.metrics()[0], result)


def read_config(file: Path) -> Config:
    """Read a run's configuration.  Raises `Corrupt`."""
    try:
        return stored(read_plain(file))
    except Unreadable:
        raise
    except Corrupt as error:
        reason = str(error).removeprefix(f"{file} ")
        raise Corrupt(f"{file} is gone or damaged: it {reason}", file if file.exists() else None) from None
    except ValueError as error:
        raise Corrupt(f"{file} is damaged: it {error}", file) from None
