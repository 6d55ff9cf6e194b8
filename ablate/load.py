"""In a notebook: `ablate.load("results/runs/<cell>/s<seed>-<key>")`, `ablate.load("results/studies/<study>")`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ablate.command import resembling, studies
from ablate.plain import read_plain
from ablate.results import Corrupt, Run, Study, load_study, noted
from ablate.targets import named

if TYPE_CHECKING:
    from torch import nn

    from ablate.data.task import Task


class LoadedRun(NamedTuple):
    """One run: its resolved configuration, its logged steps, and its result (None while it has not ended).

    The final metrics of the result include those that came after it, at other lengths say.
    """

    run: Run
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: dict[str, Any] | None

    def __repr__(self) -> str:
        status = self.result["status"] if self.result else "not ended"
        return f"<run {self.run.path}: {status}, {len(self.metrics)} logged steps>"

    def model(self) -> nn.Module:
        """The trained model, on the CPU, in evaluation mode.  Raises FileNotFoundError when no weights were kept,
        ValueError when the text has changed since, and its tokens with it.
        """
        from safetensors.torch import load_file

        from ablate.build import build_model

        if not self.run.weights_file.exists():
            raise FileNotFoundError(f"{self.run.weights_file} is not there: the run did not end, or had keep=none")
        task = self.task()
        model = build_model(self.config, task, self.config["user"])
        state, kept = model.state_dict(), load_file(self.run.weights_file)
        first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
        model.load_state_dict({name: kept[first[tensor.data_ptr()]] for name, tensor in state.items()})
        return model.eval()

    def task(self) -> Task:
        """The task that it was trained on.  Raises ValueError when the data have changed since, and
        ModuleNotFoundError when parts of the run come from a package that is not found here.
        """
        from ablate.code import not_found, targets_of

        parts = {key: node for key, node in self.config.items() if key != "track"}
        if lost := not_found(targets_of(parts), self.config["user"]):
            raise ModuleNotFoundError(
                f"the package {', '.join(lost)} that it was built from is not found here; "
                "run from the folder that holds it, or add that folder to PYTHONPATH"
            )
        from ablate.build import build_task

        task: Task = build_task(self.config, self.config["user"])
        if self.result and task.fingerprint != self.result["data_fingerprint"]:
            raise ValueError(f"{self.run.folder} was trained on other data than {task.name} is now")
        return task


def load(path: str | Path, user: Iterable[str] = ()) -> LoadedRun | Study:
    """A run by its folder, or a study by its folder or its name in `results` (or ABLATE_RESULTS).

    `user` names the packages of your own that a run's model may be built from: files allow none.
    A study has `runs` and `curves` as DataFrames; `ablate.evidence.effects(study)` gives its effects.  Raises
    FileNotFoundError where there is neither, `Corrupt` where it cannot be read.
    """
    results = Path(os.environ.get("ABLATE_RESULTS", "results"))
    for folder in (Path(path).resolve(), (results / "studies" / path).resolve()):
        if (folder / "config.yaml").exists():
            return load_run(folder, user)
        if (folder / "manifest.json").exists():
            study = load_study(folder.parents[1], folder.name)
            for note in study.notes:
                warnings.warn(note, stacklevel=2)
            return study
    beside = Path(path).parent
    there = studies(beside.parent if beside.name == "studies" else results)
    raise FileNotFoundError(
        f"{path} is no run and no study; name a folder results/runs/<cell>/s<seed>-<key> or results/studies/<study>"
        + f"; {resembling(Path(path).name, there)}" * bool(there)
    )


def load_run(folder: Path, user: Iterable[str] = ()) -> LoadedRun:
    """Read a run's folder.  Raises FileNotFoundError when it holds no run, ValueError for what is no `user` package."""
    folder, packages = folder.resolve(), named(user)
    if not (folder / "config.yaml").exists():
        raise FileNotFoundError(f"{folder} holds no run; name a folder results/runs/<cell>/s<seed>-<key>")
    found = Run(folder.parents[2], f"{folder.parent.name}/{folder.name}")
    result = found.result()
    notes: list[str] = []
    if result:
        result["final"] |= noted(found.evaluation, notes) or {}
    for note in notes:
        warnings.warn(f"{note}; passed over", stacklevel=3)
    config = read_plain(found.config_file)
    if not isinstance(config, dict):
        raise Corrupt(f"{found.config_file} is no configuration")
    return LoadedRun(found, config | {"user": packages}, found.metrics()[0], result)
