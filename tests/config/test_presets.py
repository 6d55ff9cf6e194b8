"""Presets: groups chosen together, before whatever the command line says itself."""

import pytest
from composed import composed
from omegaconf import OmegaConf

from ablate.config.command import read_command
from ablate.config.depth import variants_of
from ablate.config.groups import CONF, comment_words, description, groups
from ablate.config.schema import COMPONENTS, LAYERS, NAMED
from ablate.planning.plan import compose_study
from ablate.planning.study import PlannedStudy

SIZED = ("layers", "heads", "dim", "dropout")
PRESETS = {name: OmegaConf.to_container(OmegaConf.load(file)) for name, file in sorted(groups()["preset"].items())}


def test_a_preset_chooses_a_whole_model_and_leaves_sizes_and_all_else_alone():
    for name, body in PRESETS.items():
        file = groups()["preset"][name]
        assert file.read_text().startswith("# @package _global_\n")
        assert description(file) and comment_words(file, "cite"), (
            f"{file}: write its paper, # cite: KEY, as in ablate/conf/papers.bib"
        )
        listed = [key for entry in body["defaults"] for key in entry]
        assert all(key.startswith("override /") for key in listed), name
        chosen = {key.removeprefix("override /") for key in listed}
        assert {*COMPONENTS, "model"} >= chosen >= {*NAMED, "model"} - {"init"}, "else it changes with the reference"
        assert body.keys() <= {"defaults", *COMPONENTS, "model"} and body["model"].keys().isdisjoint(SIZED), name


def test_the_command_line_beats_a_preset():
    for overrides in (["+preset=gpt2", "norm=rms"], ["norm=rms", "+preset=gpt2"]):
        found = composed(*overrides).choices
        assert found.items() >= {"norm": "rms", "ffn": "gelu", "preset": "gpt2"}.items()
    assert composed("attention.bias=false", "+preset=gpt2").config.attention["bias"] is False


def test_another_variant_keeps_what_it_shares_with_the_presets_and_drops_the_rest():
    grouped = composed("+preset=gpt2", "attention=gqa", "ffn=swiglu", "norm=none", "model=encoder").config
    assert grouped.attention["bias"] is True and grouped.attention["kv_heads"] == 2
    own = OmegaConf.to_container(OmegaConf.load(CONF / "ffn" / "swiglu.yaml"))
    assert grouped.ffn == own | {"bias": True}, "GELU's approximation has no place here"
    assert grouped.norm.keys() == {"_target_", "_partial_"}
    assert grouped.model.tie_embeddings is True and grouped.model._target_.endswith(".Encoder")
    # What is dropped for one cell is there for the next.
    assert composed("+preset=gpt2").config.ffn["approximate"] == "tanh"


def test_a_preset_has_a_pattern_over_the_layers_whose_variants_keep_its_settings():
    """What a preset's local layers bring, one thing at a time; another variant keeps what its YAML has."""
    whole = composed("+preset=gemma2")
    assert whole.choices["attention"] == whole.config.attention[LAYERS] == "window+gqa+..."
    assert [whole.config.attention[name]["soft_cap"] for name in ("window", "gqa")] == [50.0, 50.0]
    assert "window" in whole.config.attention["window"] and "window" not in whole.config.attention["gqa"]

    for choice in ("gqa", "window", "3window+gqa"):
        found = composed("+preset=gemma2", f"attention={choice}").config.attention
        for settings in variants_of(found):
            assert settings["soft_cap"] == 50.0 and settings["kv_heads"] == 2 and LAYERS not in settings
    other = composed("+preset=gemma2", "attention=mha").config.attention
    assert other.keys() == {"_target_", "_partial_", "bias", "scale"}
    capped = composed("+preset=gemma2", "attention.soft_cap=20", "attention.window=6").config.attention
    assert [capped[name]["soft_cap"] for name in ("window", "gqa")] == [20, 20] and capped["window"]["window"] == 6


def composition(*words: str) -> PlannedStudy:
    """A command line up to its cells, which nothing has checked."""
    return compose_study(*read_command(words, None))


def test_what_a_variant_does_not_take_from_the_preset_is_reported():
    def remarks(*words):
        lines = composition("+preset=gemma2", *words).entries["remarks"]
        return [line for line in lines if "gemma2" in line or "reaches" in line]

    assert not remarks("attention=window") and not remarks()
    assert remarks("attention=mha,gqa") == ["attention=mha has no kv_heads, soft_cap; what gemma2 sets is not applied"]
    assert remarks("attention=mha+gqa", "attention.soft_cap=20") == [
        "attention=mha has no kv_heads, soft_cap; what gemma2 sets is not applied",
        "attention.soft_cap reaches gqa, not mha",
    ]


def test_presets_are_a_factor_and_a_base_for_others():
    both = composition("+preset=gpt2,llama")
    assert both.factors == {"preset": ["gpt2", "llama"]} and both.reference == {"preset": "gpt2"}
    assert [cell.choices["ffn"] for cell in both.drafts] == ["gelu", "swiglu"]
    crossed = composition("+preset=gpt2,llama", "norm=rms,none")
    assert crossed.reference == {"norm": "rms"}, "presets are strata where a component varies"
    assert [draft.label for draft in crossed.drafts] == ["gpt2 + rms", "gpt2 + none", "llama + rms", "llama + none"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("preset=gtp2", "no such preset; did you mean gpt2?"),
        ("+preset=t5", "EncoderDecoder does tasks from sequence to sequence; write another data, or another model"),
        ("+preset=gpt2 ffn.aproximate=none", "no such key; did you mean ffn.approximate?"),
    ],
)
def test_a_mistake_is_answered_by_what_to_write(words, said, refused):
    assert said in refused(*words.split())[0]
