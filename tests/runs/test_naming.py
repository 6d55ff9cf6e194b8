"""Names that papers use: one for every built-in variant, key and metric, no two alike, and patterns read as text."""

from collections import Counter

import pytest
from fake_studies import a_manifest

from ablate.config.files import read_plain
from ablate.config.groups import groups, names_in
from ablate.config.schema import SECTIONS, VARIED
from ablate.data.metrics import METRICS
from ablate.runs import naming
from ablate.runs.records import TaskFacts

NAMES = names_in()
LM = TaskFacts(token="byte", metrics={"loss": "min", "accuracy": "max"})


def test_every_variant_key_and_metric_has_a_name():
    files = {f"{group}={name}": file for group, found in groups().items() for name, file in found.items()}
    settings = {
        f"{variant.partition('=')[0]}.{key}"
        for variant, file in files.items()
        if not variant.startswith(("preset", "scale"))
        for key in read_plain(file)
        if not key.startswith("_") and key != "defaults"
    }
    keys = {
        f"{name}.{key}"
        for name, fields in SECTIONS.items()
        if name != "tune"
        for key in vars(fields)["__annotations__"]
    }
    wanted = {*files, *groups(), *settings, *keys, *METRICS, "bpb"} - {f"{name}._target_" for name in SECTIONS}
    missing = sorted(wanted - NAMES.keys() - {"track.project", "track.entity"})
    assert not missing, (
        f"write # name: … below the first line of a variant's YAML, or a line in ablate/conf/names.yaml: {missing}"
    )


def test_no_name_stands_for_two_things():
    """Variants that stand alone, side by side in a cell's label; the other variants of a group; the keys."""
    alone = [name for key, name in NAMES.items() if "=" in key and key.partition("=")[0] in VARIED]
    others = [f"{key.partition('=')[0]} {name}" for key, name in NAMES.items() if "=" in key]
    keys = [name for key, name in NAMES.items() if "=" not in key and ("." in key or key in groups())]
    twice = [name for names in (alone, others, keys) for name, count in Counter(names).items() if count > 1]
    assert not twice, f"two variants, or two keys, have one name: {twice}"


@pytest.mark.parametrize(
    ("factor", "level", "shown", "alone"),
    [
        ("norm", "group(groups=4)", "GroupNorm (groups 4)", "GroupNorm (groups 4)"),
        ("attention", "2window(window=4)+mha", "2 × Sliding window (window 4) + MHA", None),
        ("optim.lr", 0.001, "1e-3", "learning rate 1e-3"),
        ("model.dim", 128, "128", "width 128"),
        ("ffn.bias", False, "off", "FFN bias off"),
        ("model.layers+model.dim", "4+128", "layers 4, width 128", "layers 4, width 128"),
        ("norm", "mine", "mine", "norm mine"),
        ("norm", "yours", "YourNorm", "YourNorm"),
        ("mine.alpha", 3, "3", "mine.alpha 3"),
    ],
)
def test_levels_are_read_as_papers_write_them(factor, level, shown, alone):
    manifest = a_manifest(factors={factor: [level, "other"]}, names={"norm=yours": "YourNorm"})
    assert naming.assigned(manifest, factor, "x") == f"{factor}=x"
    manifest = a_manifest(factors=manifest.factors, shown=naming.paper_labels(manifest))
    assert naming.named(manifest, level, factor) == shown
    assert naming.assigned(manifest, factor, level) == (alone or shown)


@pytest.mark.parametrize(("design", "title"), [("grid", "norm × ffn"), ("leave_one_out", "norm, ffn, leave one out")])
def test_a_study_is_called_by_its_factors_and_a_design_that_is_no_grid(design, title):
    assert naming.title(a_manifest(factors={"norm": ["ln", "rms"], "ffn": ["mlp"]}, design=design)) == title


@pytest.mark.parametrize(
    ("metric", "shown", "words"),
    [
        ("test/loss", "test loss (nats per byte)", "test loss"),
        ("val/accuracy", "validation accuracy", "validation accuracy"),
        ("test/loss@64", "test loss at length 64 (nats per byte)", "test loss at length 64"),
        ("test/loss_batch", "test loss with batch statistics", "test loss with batch statistics"),
        ("test/solved", "share of runs solved", "share of runs solved"),
        ("test/chrf", "chrF", "chrF"),
    ],
)
def test_metrics_are_words_with_a_unit_and_may_be_renamed(metric, shown, words):
    manifest = a_manifest(tasks={"f": LM}, shown={"test/chrf": "chrF", "norm": "norm"})
    assert (naming.metric_name(manifest, metric), naming.metric_words(manifest, metric)) == (shown, words)
    keys = a_manifest(tasks={"f": LM})
    assert naming.metric_name(keys, "test/loss") == "test/loss, nats per byte"


def test_names_of_the_user_s_folder_are_those_of_its_yamls(tmp_path):
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "max.yaml").write_text("# MaxNorm: x / max|x|.\n# name: MaxNorm\n_target_: a.MaxNorm\n")
    assert names_in(tmp_path) == {"norm=max": "MaxNorm"}
