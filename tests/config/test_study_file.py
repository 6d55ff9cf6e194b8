"""Study files, by the real planner: what they become, who wins, what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from one_run import carry_out, here, write_plan

from ablate.cli.main import help_text
from ablate.cli.preview import preview
from ablate.config.command import read_command
from ablate.config.files import read_plain
from ablate.config.groups import CONF, experiments, groups
from ablate.config.study_file import value_text
from ablate.planning.plan import Plan, PlanError, compose_study, plan_study
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("untried", "uncounted")
GATED = {"less": [{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}], "metric": "test/loss"}
FACTORS = {"ffn": ["mlp", "gelu", "swiglu"], "norm": ["ln", "rms"]}
BASE: dict[str, Any] = {
    "study": "glu",
    "question": 'Is it "better", and what\'s the {price}?',
    "model": {"dim": 16, "layers": 1, "heads": 2},
    "data.context": 16,
    "train": {"batch_size": 4, "steps": 6, "eval_every": 3, "log_every": 2},
    "eval.tokens": 256,
    "optim.warmup": 2,
    "track": "none",
    "data": "text",
    "seeds": 2,
    "factors": FACTORS,
    "claims": {"gated": GATED},
    "tiers": {
        "tall": {"model.layers": 2, "seeds": 3},
        "other": {"factors": {"ffn": ["gelu", "reglu"]}},
        "sparse": {"ffn": "moe", "ffn.experts": 4},  # a key that the variants of the file have not
    },
}


class Folder:
    """A folder of the user's with one study file in it."""

    def __init__(self, path: Path, text: Path, results: Path):
        self.path, self.results = path, results
        self.base = BASE | {"data.path": str(text)}
        (path / "experiment").mkdir(parents=True)

    def write(self, **changes: Any) -> None:
        """Write the file with other entries, or without those that are None."""
        content = {key: value for key, value in (self.base | changes).items() if value is not None}
        text = "# What the file is for.\n" + yaml.safe_dump(content, sort_keys=False)
        (self.path / "experiment" / "mine.yaml").write_text(text)

    def plan(self, *overrides: str) -> Plan:
        return plan_study(("+experiment=mine", f"results_dir={self.results}", *overrides), str(self.path))

    def refused(self, *overrides: str, **changes: Any) -> list[str]:
        """What is wrong with a file that sets nothing but its data beside what is asked about, one line each."""
        plain = dict.fromkeys(("model", "data.context", "train", "eval.tokens", "optim.warmup"))
        self.write(**plain | changes)
        with pytest.raises(PlanError) as raised:
            self.plan(*overrides)
        return [str(problem).replace(f"{self.path}/experiment/", "") for problem in raised.value.problems]


@pytest.fixture
def folder(tmp_path, text) -> Folder:
    made = Folder(tmp_path / "own", text, tmp_path / "results")
    made.write()
    return made


def finish(planned: Plan) -> None:
    """Write the plan, and results for all of its runs."""
    write_plan(planned)
    final = {"test/loss": 2.0, "val/loss": 2.0}
    for path in planned.todo:
        write_json(Run(planned.results, path).result_file, {"status": "done", "final": final, "error": None})


def test_a_file_is_a_study_and_the_command_line_wins(folder):
    def shape(*overrides):
        made = compose_study(*read_command(("+experiment=mine", *overrides), str(folder.path)))
        return made.settings.study, made.factors, made.settings.seeds, made.settings.model.layers

    assert shape() == ("glu", FACTORS, 2, 1)
    name, *rest = shape("seeds=1", "model.layers=3")
    assert rest == [FACTORS, 1, 3] and re.fullmatch("glu-[0-9a-f]{6}", str(name)), "it is not the study of the file"
    assert shape("seeds=1", "train.parallel=1", "train.checkpoint_seconds=0")[0] == "glu", "it asks the same"
    assert shape("tier=tall", "seeds=1", "study=x") == ("x", FACTORS, 1, 2)
    assert shape("tier=null") == shape()
    assert shape("ffn=swiglu,mlp")[1] == FACTORS | {"ffn": ["swiglu", "mlp"]}
    assert shape("norm=rms", "study=glu")[:2] == ("glu", {"ffn": FACTORS["ffn"]})
    assert shape("init=gpt2,xavier", "design=one_at_a_time")[1].keys() == {"ffn", "norm", "init"}
    assert shape("tier=other")[1] == FACTORS | {"ffn": ["gelu", "reglu"]}
    folder.write(study=None)
    assert shape()[0] == "mine" and shape("tier=tall")[0] == "mine-tall", "without a name it has its file's"


def test_the_manifest_and_the_plan_say_what_was_requested(folder):
    planned = folder.plan("tier=tall")
    manifest = planned.manifest
    found = (manifest.study, manifest.factors, manifest.seeds, manifest.cells[0].config.model.layers)
    assert found == ("glu-tall", FACTORS, [0, 1, 2], 2)
    assert (manifest.experiment, manifest.tier, manifest.question) == ("mine", "tall", BASE["question"])
    assert manifest.claims["gated"].claim.as_json() == GATED and manifest.claims["gated"].registered
    assert re.fullmatch(r"[0-9a-f]{16}", manifest.claims_hash)
    assert folder.plan("tier=tall", "train.parallel=1").manifest.asks == manifest.asks
    assert folder.plan("tier=tall", "train.steps=8", "study=glu-tall").manifest.asks != manifest.asks
    assert manifest.command.endswith("+experiment=mine results_dir=" + str(folder.results) + " tier=tall")
    shown = preview(planned)
    claims = "1 claim, registered: written before any seed had results on both sides"
    for line in (f"question: {BASE['question']}", "tier: tall", claims):
        assert line in shown.splitlines()


def test_presets_nested_keys_and_awkward_words_reach_the_configuration(folder):
    betas, rates = [[0.9, 0.95], [0.9, 0.99]], {"lr": 5e-4, "warmup": 3}
    changes = {"optim.warmup": None, "track": ["wandb"], "track.project": "mine"}
    folder.write(preset="llama", factors={"optim.betas": betas}, optim=rates, claims=None, **changes)
    manifest = folder.plan().manifest
    assert [service["project"] for service in manifest.cells[0].config.track] == ["mine"]
    assert manifest.cells[0].name.startswith("rms-swiglu")
    assert [json.loads(level) for level in manifest.factors["optim.betas"]] == betas
    assert {cell.config.optim.lr for cell in manifest.cells} == {5e-4}


AWKWARD = ["a b", "it's", 'say "x"', "a\\", "\\'", "a,b", "{x}", "[y]"]
AWKWARD += ["1e-3", "12", "true", "Null", "nan", "é ∑", "", "k=v"]


@pytest.mark.parametrize("value", [*AWKWARD, 0, -1, 1e-5, 2.5, True, False, None, AWKWARD, [[0.9, 0.95], []]], ids=repr)
def test_values_are_read_back_as_they_were_written(value):
    override = OverridesParser.create().parse_override(f"key={value_text(value)}")
    assert override.value() == value and not override.is_sweep_override()
    assert type(override.value()) is type(value)


def test_other_levels_leave_out_the_claims_that_need_the_old_ones(folder):
    folder.write(replicated=["gated"])
    assert folder.plan("tune.key=optim.lr", "tune.values=[1e-3,3e-3]").manifest.replicated.value.of == ["gated"]
    assert folder.plan("norm=ln").manifest.claims, "a claim about another factor stays"
    changed = folder.plan("ffn=swiglu,mlp")
    assert changed.manifest.claims == {} and changed.manifest.replicated is None
    assert "not tested here: claims.gated, since ffn=gelu has no configuration in this study" in changed.notes
    assert "replicated: is not judged: its claim gated has no configurations here" in changed.notes
    assert folder.refused(replicated=["gatde"]) == ["mine.yaml: replicated: no such claim: gatde; did you mean gated?"]


def test_claims_name_levels_that_are_lists_and_zipped_ones_that_are_true_or_null(folder):
    betas = [[0.9, 0.95], [0.9, 0.99]]
    claims = {"a": {"less": [{"optim.betas": "[0.9, 0.99]"}, {"optim.betas": "[0.9, 0.95]"}]}}
    folder.write(factors={"optim.betas": betas}, claims=claims)
    assert [*folder.plan().manifest.claims] == ["a"]
    claims = {"a": {"less": [{"model.scale_embeddings": True}, {"model.scale_embeddings": False}]}}
    claims["b"] = {"less": [{"model.head_dim": 8}, {"model.head_dim": None}]}
    factors = {"model.scale_embeddings": [False, True], "model.head_dim": [None, 8]}
    folder.write(factors=factors, zip=[*factors], claims=claims)
    manifest = folder.plan().manifest
    assert [*manifest.claims] == ["a", "b"]
    assert manifest.reference == {"model.scale_embeddings+model.head_dim": "false+null"}


def test_an_option_that_its_yaml_leaves_out_takes_a_plus_and_is_a_factor(folder):
    claims = {"helps": {"less": [{"+attention.qk_norm": "rms"}, {"attention.qk_norm": None}]}}  # with or without it
    option = {"+attention.qk_norm": [None, "rms"]}
    folder.write(factors=option, claims=claims, attention={"+gate": "feature"}, tiers={"more": {"factors": option}})
    for planned in (folder.plan(), folder.plan("tier=more")):
        assert planned.manifest.factors == {"attention.qk_norm": [None, "rms"]}
        assert [*planned.manifest.claims] == ["helps"]
        options = [(cell.config.attention["gate"], cell.config.attention["qk_norm"]) for cell in planned.manifest.cells]
        assert options == [("feature", None), ("feature", "rms")]
    without = {"attention.qk_norm": [None, "rms"]}
    [message] = folder.refused(factors=without, claims=claims, tiers=None)
    assert message.endswith("what its YAML leaves out takes a plus: +attention.qk_norm")


TWO = {
    "factors": {"ffn": ["mlp", "swiglu"]},
    "claims": {"gated": {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"}},
}


def test_runs_that_are_trained_again_are_known_already(folder):
    """Under reuse=none the same seeds of the same cells give the numbers that another study has shown."""
    folder.write(**TWO | {"claims": None})
    first = folder.plan("study=first")
    finish(first)
    folder.write(**TWO)
    again = folder.plan("reuse=none")
    assert len(again.todo) == len(first.todo) and not again.manifest.claims["gated"].registered
    assert folder.plan("reuse=none", "seeds=[7,8]").manifest.claims["gated"].registered


def test_results_of_an_equal_variant_of_another_name_are_known(folder):
    (folder.path / "ffn").mkdir()
    (folder.path / "ffn" / "mine.yaml").write_text(yaml.safe_dump(read_plain(CONF / "ffn" / "swiglu.yaml")))
    folder.write(**TWO | {"claims": None, "factors": {"ffn": ["mlp", "mine"]}})
    finish(folder.plan("study=first"))
    folder.write(**TWO)
    again = folder.plan()
    assert len(again.todo) == 2 and not again.manifest.claims["gated"].registered
    assert "gated is post hoc: there are results of these seeds" in " ".join(again.notes)
    assert folder.plan("seeds=[7,8]").manifest.claims["gated"].registered


TUNED = TWO | {"tune": {"key": "optim.lr", "values": [1e-3, 3e-3], "seeds": 1}, "study": "kept"}
EDITED = {"gated": {"greater": TWO["claims"]["gated"]["less"]}}


def test_a_claim_that_is_edited_after_the_tuning_keeps_its_earlier_text(folder):
    """Tuning's manifest holds the claims before that, and the study's takes them from there."""
    folder.write(**TUNED)
    tuning = folder.plan()
    assert "registered: written before any seed had results on both sides" in preview(tuning)
    finish(tuning)
    study = folder.plan()
    assert study.manifest.study == "kept" and study.manifest.tuning
    assert study.manifest.claims == tuning.manifest.claims and study.manifest.claims["gated"].registered
    folder.write(**TUNED | {"claims": EDITED})
    edited = folder.plan().manifest.claims["gated"]
    assert edited.registered, "tuning's seeds are never scored"
    assert edited.earlier[0].claim.as_json() == TWO["claims"]["gated"]


def test_a_claim_after_scored_results_is_post_hoc_though_the_tuning_knew_it(folder):
    folder.write(**TUNED | {"claims": None})
    finish(folder.plan())
    finish(folder.plan())  # the scored seeds
    folder.write(**TUNED)
    planned = folder.plan()
    assert not planned.manifest.claims["gated"].registered
    note = "gated is post hoc: there are results of these seeds; confirm=8 registers claims on fresh ones"
    assert note in planned.notes
    assert folder.plan("confirm=2").manifest.claims["gated"].registered, "of fresh seeds nothing is known"
    again = folder.plan("study=renamed")
    assert not again.manifest.claims["gated"].registered, "they are the same runs"
    assert note in again.notes


BOTH = {"less": [{"ffn": "swiglu", "norm": "rms"}, {"ffn": "mlp", "norm": "ln"}]}
RMS, RATES = {"norm": "rms"}, {"optim.lr": [1e-3, 1e-2]}
MIRROR: dict[str, Any] = {"source": "P 2019, table 1", "metric": "BLEU", "series": [{"of": RMS, "value": 26.8}]}
CURVES = {"x": "optim.lr", "series": [{"of": RMS, "points": [[0.001, 2.5], [0.1, 3]]}]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sources": 1}, "no such key: sources; did you mean source?"),
        ({"series": [{"of": {"norm": "rmsn"}}]}, "series: norm has no level rmsn; did you mean rms?"),
        (CURVES | {"x": "norm"}, "x: norm is no factor of numbers; there are optim.lr, epoch, eval.lengths"),
        (CURVES | {"trained": 15}, "trained: must be the paper's training, > 0, with x: epoch or x: eval.lengths, and"),
    ],
)
def test_a_mirror_that_does_not_fit_its_study_is_refused(folder, changes, said):
    """One line per mistake, before any cell is composed."""
    factors = {"norm": ["ln", "rms"]} | (RATES if "x" in changes or "optim.lr" in str(changes) else {})
    lines = folder.refused(factors=factors, claims=None, mirror=MIRROR | changes)
    assert any(line.startswith(f"mine.yaml: mirror: {said}") for line in lines), lines


def test_a_mirror_is_kept_in_the_manifest_and_changes_no_run(folder):
    two = {"factors": {"norm": ["ln", "rms"]} | RATES, "claims": None}
    folder.write(**two)
    plain = folder.plan()
    folder.write(**two, mirror=MIRROR | CURVES)
    mirrored = folder.plan()
    assert mirrored.manifest.mirror.as_json() == MIRROR | CURVES and plain.manifest.mirror is None
    assert [run.path for run in mirrored.manifest.runs] == [run.path for run in plain.manifest.runs]
    assert mirrored.manifest.asks == plain.manifest.asks
    assert folder.plan("norm=ln").manifest.mirror == mirrored.manifest.mirror, "the figure leaves out what is gone"


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"model": {"layers": "two"}}, "mine.yaml: model.layers: must be a whole number ≥ 1 and ≤ 1000, not two"),
    ({"factors": {"ffn": ["mlp", "swigloo"]}, "claims": None}, "mine.yaml: ffn=swigloo: no such ffn"),
    ({"factors": {"norm": ["group(8"]}, "claims": None}, "mine.yaml: norm=group(8: cannot be read; parentheses after"),
    ({"factors": {"ffn": "mlp"}, "claims": None}, "mine.yaml: factors.ffn: must be a list of levels; write [first, "),
    ({"ffn": "gelu"}, "mine.yaml: ffn: is given twice; write it once"),
    ({"tier": "tall"}, "mine.yaml: tier: belongs on the command line"),
    ({"figure": "efects"}, "mine.yaml: figure: efects: no such figure; did you mean effects?"),
    ({"seedz": 3}, "mine.yaml: seedz: no such key; did you mean seeds?"),
    (
        {"tiers": {"tall": {"train": {"steps": "many"}}}},
        "mine.yaml: tiers.tall.train.steps: must be a whole number ≥ 1, not many",
    ),
    ({"tiers": {"tall": {"init": "gpt3"}}}, "mine.yaml: tiers.tall.init=gpt3: no such init"),
    (
        {"design": "one_at_a_time", "claims": {"both": BOTH}},
        "mine.yaml: claims.both: ffn=swiglu, norm=rms has no configuration in this study",
    ),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES, ids=[message[11:50] for _, message in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_file_and_the_key(folder, changes, message):
    said = folder.refused(**changes)
    assert len(said) == 1 and said[0].startswith(message), said


def test_all_mistakes_of_a_file_are_told_at_once(folder):
    claims = {"a": {"less": [{"ffn": "mlp"}, {"ffn": "glu"}]}, "b": GATED | {"metric": "test/los"}}
    said = folder.refused("seeds=0", trian=3, train={"stepz": 3}, claims=claims)
    heads = ["mine.yaml: trian: no such key; did you mean train?", "mine.yaml: train.stepz: no such key", "seeds: "]
    heads += ["mine.yaml: claims.a: less: ffn has no level glu", "mine.yaml: claims.b: no such metric: test/los"]
    assert [any(line.startswith(head) for line in said) for head in heads] == [True] * 5 and len(said) == 5, said


def test_a_file_that_is_no_yaml_or_no_mapping_is_refused(folder):
    assert folder.refused("tier=gpu")[0].startswith("tier=gpu: mine.yaml has no such tier; there are")
    for text in ("a: [1", "- a\n- b", "seeds: 1\nseeds: 2"):
        (folder.path / "experiment" / "mine.yaml").write_text(text)
        with pytest.raises(PlanError, match=r"mine\.yaml(:| is not readable as YAML)") as raised:
            folder.plan()
        assert len(raised.value.problems) == 1 and "\n" not in str(raised.value)


def test_a_file_of_the_users_cannot_hide_one_of_ablates(folder):
    assert "experiment" not in groups(str(folder.path)), "study files are no variants"
    assert set(experiments(str(folder.path))) >= {"mine", "glu_variants"}
    (folder.path / "experiment" / "glu_variants.yaml").write_text("seeds: 1")
    with pytest.raises(PlanError, match="has the name of a variant or a study of ablate's"):
        folder.plan()


def test_a_study_file_is_trained_from_anywhere(folder, tmp_path, monkeypatch, capsys):
    claims = {"worse": {"greater": [{"norm": "bn"}, {"norm": "powernorm"}]}}
    folder.write(seeds=1, factors={"norm": ["bn", "powernorm"]}, claims=claims, **{"norm.momentum": 0.2})
    shown = help_text(str(folder.path), ["experiment"])
    assert "mine            What the file is for." in shown and "glu_variants    Do gated FFNs" in shown
    with pytest.raises(PlanError, match=r"\+experiment=nine: no such study file; "):
        plan_study(("+experiment=nine",), str(folder.path))
    monkeypatch.chdir(tmp_path)
    assert carry_out(plan_study(["experiment=mine", "train.steps=4", "study=glu"], "own"), here) == 0
    judged = "worse (registered): undecided. bn against powernorm (1 seed; one seed can conclude nothing; "
    assert judged in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "results", "glu")
    assert {cell.config.norm["momentum"] for cell in manifest.cells} == {0.2}
    assert {cell.config.train.steps for cell in manifest.cells} == {4}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "results"], "something else was written"
    assert folder.plan("train.steps=4", "study=glu").todo == []
