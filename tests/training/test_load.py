"""A model of any form comes back from its weights as it was."""

import pytest
import torch
import yaml
from empty_task import Blank
from fake_studies import fabricate, whole
from reference_config import CONFIG, component

from ablate import evidence, load
from ablate.config.components import resolve
from ablate.config.groups import groups
from ablate.config.schema import typed
from ablate.execution.train_run import save_weights
from ablate.model.build import initialised_model
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.training.load import LoadedRun

FORMS = [
    (form, kind)
    for form in sorted(groups()["model"])
    for kind in resolve("model", component("model", form)["_target_"]).kinds
]
SHAPE = {"layers": 2, "heads": 2, "dim": 16}


@pytest.mark.parametrize(
    ("form", "kind", "tied", "shared"), [(*form, i % 2 == 0, i % 3 == 0) for i, form in enumerate(FORMS)]
)
def test_weights_come_back(form, kind, tied, shared, tmp_path, monkeypatch):
    task = Blank(kind=kind)
    tied = tied and kind != "classification"  # classes are no tokens
    more = {"tie_embeddings": tied, "share_layers": shared}
    parts = CONFIG | {"norm": component("norm", "bn"), "model": component("model", form) | SHAPE | more}
    config = whole(parts)
    trained = initialised_model(typed(config), task, 3)
    inputs = {name: torch.randint(1, task.vocab, tensor.shape) for name, tensor in task.blank().items()}
    trained(**inputs)  # moves the running statistics
    run = Run(tmp_path, "cell/s0-key")
    run.folder.mkdir(parents=True)
    run.config_file.write_text(yaml.safe_dump(config))
    write_json(run.result_file, {"status": "done", "final": {}, "error": None})
    save_weights(run, trained)
    monkeypatch.setattr(LoadedRun, "task", lambda self: task)
    loaded = load(run.folder).model()
    assert not loaded.training
    with torch.no_grad():
        assert torch.equal(loaded(**inputs), trained.eval()(**inputs))
    assert all(torch.equal(t, trained.state_dict()[name]) for name, t in loaded.state_dict().items())


def test_a_study_by_its_folder_and_by_its_name(tmp_path, monkeypatch):
    fabricate(tmp_path / "results", {"ffn": ["mlp", "swiglu"]})
    monkeypatch.chdir(tmp_path)
    for what in (tmp_path / "results" / "studies" / "fabricated", "results/studies/fabricated", "fabricated"):
        assert evidence.effects(load(what))["n"].item() == 3
    (next((tmp_path / "results" / "runs").glob("*/*")) / "result.json").write_text("{")
    with pytest.warns(UserWarning, match="is not readable as JSON"):
        load("fabricated")
    with pytest.raises(FileNotFoundError, match=r"no run and no study; name a folder .*; there is only fabricated$"):
        load("nothing")
    with pytest.raises(FileNotFoundError, match=r"no study; .*; did you mean fabricated\?$"):
        load("fabricatd")
