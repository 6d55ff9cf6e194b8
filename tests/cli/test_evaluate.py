"""ablate evaluate: kept weights give the numbers that training wrote."""

import pickle
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from conftest import SHAPE, STEPS, run_module
from fake_studies import edit_json
from one_run import sweep_here

from ablate.cli.evaluate import configured, main
from ablate.model import products
from ablate.results.atomic import read_json, write_json
from ablate.results.manifest import read_manifest
from ablate.results.run import Run
from ablate.training import evaluation
from ablate.training.load import load_run


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory) -> Path:
    """A folder with three studies: one of two cells; one without weights; one of learned positions."""
    folder = tmp_path_factory.mktemp("trained")
    small = [*SHAPE, *STEPS, "data=text", f"data.path={text}", f"results_dir={folder / 'results'}", "seeds=1"]
    for arguments in (
        ["norm=ln,bn", "model.dropout=0.1", "study=norms"],
        ["study=bare", "keep=none", "ffn=gelu"],
        ["study=learned", "position=learned"],
    ):
        with patch("ablate.planning.plan.try_out", return_value=[]):
            assert sweep_here(*arguments, *small) == 0
    return folder


@pytest.fixture
def evaluate(trained, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """The command from the folder of the studies: its exit code and what it printed.

    As of runs with user code, on a system that cannot fork: what another process does is sent to it.
    """
    monkeypatch.chdir(trained)
    monkeypatch.setattr("ablate.cli.evaluate.is_foreign", lambda config: True)
    sent = "ablate.planning.checks.user_code.run_in_subprocess"
    monkeypatch.setattr(sent, lambda call: pickle.loads(pickle.dumps(call))())
    return lambda *arguments: (main([*arguments]), capsys.readouterr().out)


def test_linear_layers_are_computed_as_in_training(text, tmp_path, monkeypatch, untried):
    """By the other library last digits would differ on some machines: at other lengths too, tested then or later."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    words = [*SHAPE, *STEPS, "data=text", f"data.path={text}", "results_dir=results", "seeds=1"]
    words += ["study=onednn", "train.matmul=onednn"]
    monkeypatch.chdir(tmp_path)
    assert sweep_here(*words) == 0
    calls: list[int] = []
    product = products.by_onednn
    monkeypatch.setattr(products, "by_onednn", lambda x, weight: calls.append(1) or product(x, weight))
    for again in (lambda: sweep_here(*words, "eval.lengths=[8]"), lambda: main(["onednn"])):
        calls.clear()
        assert again() == 0 and calls


def runs(folder: Path) -> dict[str, Run]:
    """The runs of the first study, by cell."""
    manifest = read_manifest(folder / "results", "norms")
    labels = {cell.id: cell.label for cell in manifest.cells}
    return {labels[r.cell]: Run(folder / "results", r.path) for r in manifest.runs}


def test_a_study_gives_the_numbers_that_training_wrote(trained):
    """In a process of its own, which trained nothing."""
    done = run_module("ablate", "evaluate", "norms", cwd=trained)
    assert done.returncode == 0, done.stderr
    head, *rows, said = done.stdout.splitlines()
    assert said == "equal to what training wrote" and len(rows) == 2
    columns = head.split()
    metrics = ["test/loss", "test/accuracy", "test/bpb"]
    extra = [name for name in columns if name.endswith(("_recalibrated", "_batch"))]
    assert columns == ["cell", "seed", *metrics, *extra] and "test/loss_recalibrated" in extra
    for row in rows:
        cell, _, *values = row.split()
        final, known = runs(trained)[cell].result().final, metrics + extra * (cell == "bn")
        assert values == [f"{final[name]:.4f}" for name in known]
    assert not list(trained.glob("results/runs/*/*/evaluation.json"))


def test_other_numbers_than_training_wrote_are_named(trained, evaluate):
    run = runs(trained)["bn"]
    whole = run.result_file.read_text()
    changed = run.result().final["test/loss_batch"] + 1e-9  # of another machine, say
    edit_json(run.result_file, lambda result: result["final"].update({"test/loss_batch": changed}))
    try:
        code, shown = evaluate("norms")
    finally:
        run.result_file.write_text(whole)
    *_, said = shown.splitlines()
    assert code == 1 and said.startswith("bn, seed 0: test/loss_batch is ") and "training wrote" in said
    assert "equal to what" not in shown


def test_lengths_of_one_run_are_kept_where_the_tokens_are_trainings(trained, evaluate):
    run = runs(trained)["bn"]
    before = run.result_file.read_bytes()
    for tokens in (128, 512):
        code, shown = evaluate(str(run.folder), "eval.lengths=[8]", f"eval.tokens={tokens}")
        assert code == 0 and "other eval.tokens" in shown and not run.evaluation_file.exists()
    code, shown = evaluate(str(run.folder), "eval.lengths=[8]")
    assert code == 0 and "test/loss@8" in shown and shown.endswith("what training wrote\n")
    kept = run.evaluation()
    run.evaluation_file.unlink()
    assert f"{kept['test/loss@8']:.4f}" in shown and run.result_file.read_bytes() == before
    assert kept.keys() == {"test/loss@8", "test/bpb@8", "test/accuracy@8"}


def test_lengths_before_one_that_fails_are_kept(trained, evaluate, monkeypatch):
    run, tested = runs(trained)["bn"], evaluation.at_lengths

    def fail(model, task, setting, lengths):
        if lengths == [24]:
            raise MemoryError("out of memory at this length")
        return tested(model, task, setting, lengths)

    monkeypatch.setattr(evaluation, "at_lengths", fail)
    code, _ = evaluate(str(run.folder), "eval.lengths=[8,24]")
    kept = run.evaluation()
    run.evaluation_file.unlink()
    assert code == 1 and kept.keys() == {"test/loss@8", "test/bpb@8", "test/accuracy@8"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["norms", "bare"], "norms and bare are several; write one"),
        (["bare"], "bare has no weights to evaluate: trained with keep=none"),
        (["norms", "norm=ln"], "norm cannot be set here; there are eval.lengths and eval.tokens"),
        (["norms", "eval.lengths=[8"], "write eval.lengths=[64,128] or eval.tokens=16384"),
        (["norms", "eval.tokens=-1"], "write eval.lengths=[64,128] or eval.tokens=16384"),
        (["norms", "eval.lengths=[8,8]"], "eval.lengths=[8,8] names a length twice"),
        (["learned", "eval.lengths=[8,32]"], "position=learned has 16 positions, and length 32 needs 32"),
    ],
)
def test_mistakes_are_told_in_one_line(trained, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(trained)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 1
    assert said in shown.err and shown.err.startswith("ablate evaluate: ")


def test_runs_that_cannot_be_evaluated_do_not_keep_the_others(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    run = runs(trained)["ln"]
    weights = run.weights_file.read_bytes()
    run.weights_file.unlink()
    try:
        assert main(["norms"]) == 1
    finally:
        run.weights_file.write_bytes(weights)
    shown = capsys.readouterr()
    [line] = shown.err.splitlines()
    assert line.startswith("ablate: ln, seed 0 cannot be evaluated: ") and "removed since" in line
    assert len(shown.out.splitlines()) == 3


def test_other_data_are_refused(trained, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(trained)
    run = runs(trained)["ln"]
    whole, result, other = run.config_file.read_text(), read_json(run.result_file), tmp_path / "other.txt"
    path = next(line for line in whole.splitlines() if "path:" in line)
    other.write_text("something else " * 2000)
    run.config_file.write_text(whole.replace(path, f"  path: {other}"))
    write_json(run.result_file, {key: entry for key, entry in result.items() if key != "files"})
    try:
        assert main(["norms", "eval.lengths=[8]", "eval.tokens=64"]) == 1
    finally:
        run.config_file.write_text(whole)
        write_json(run.result_file, result)
    assert "was trained on other data" in capsys.readouterr().err


def test_a_run_of_a_gpu_is_evaluated_on_the_cpu_in_float32(trained, monkeypatch):
    loaded = load_run(next(iter(runs(trained).values())).folder)
    of_gpu = loaded.config.with_value("train.device", "cuda").with_value("train.precision", "bf16")
    loaded = loaded._replace(config=of_gpu)
    for there, expected in ((False, ("cpu", "fp32")), (True, ("cuda", "bf16"))):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        train = configured(loaded, {}).train
        assert (train.device, train.precision) == expected
