"""Variants that change over the layers, from the command line to the model: planned for real, nothing trained."""

from typing import Any

import pytest

from ablate.data.task import build_task
from ablate.model.build import build_model
from ablate.planning.checks import inspect
from ablate.runs.key import code_of

LAYERS = "model.layers=6"
TRY_OUT = inspect.try_out
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def built(cell: Any) -> Any:
    """A checked cell's model."""
    return build_model(cell.config, build_task(cell.config))


def test_a_pattern_is_a_level_of_its_group_and_builds_what_it_says(plan):
    found = plan("attention=mha,2window+mha,window...+mha", "attention.bias=true", "data.context=48", "seeds=1", LAYERS)
    manifest = found.manifest
    assert manifest.factors == {"attention": ["mha", "2window+mha", "window...+mha"]}
    assert manifest.reference == {"attention": "mha"}
    assert [cell.label for cell in manifest.cells] == ["mha", "2window+mha", "window...+mha"]
    assert [cell.name.split("-")[4] for cell in manifest.cells] == ["mha", "2window+mha", "5window+mha"]
    kinds = [[type(block.attention).__name__ for block in built(cell).blocks] for cell in found.study.rows]
    assert kinds[1] == ["Window", "Window", "MHA"] * 2 and kinds[2] == ["Window"] * 5 + ["MHA"]
    assert all(block.attention.query.bias is not None for block in built(found.study.rows[1]).blocks)
    assert any("attention=window" in key for key in manifest.papers), "papers of what a pattern is made of are cited"


def test_a_setting_or_an_option_reaches_the_variants_that_have_it_and_sweeps(plan):
    found = plan("attention=window+mha", "attention.window=3,5", "seeds=1", "model.layers=2")
    assert found.manifest.factors == {"attention.window": [3, 5]}
    nodes = [cell.config.attention for cell in found.manifest.cells]
    assert [node["window"]["window"] for node in nodes] == [3, 5] and "window" not in nodes[0]["mha"]
    assert found.manifest.remarks.count("attention.window reaches window, not mha") == 1
    found = plan("attention=linear+gqa", "+attention.sink=null,zero", "seeds=1", "model.layers=2")
    nodes = [cell.config.attention for cell in found.manifest.cells]
    assert [node["gqa"]["sink"] for node in nodes] == [None, "zero"] and "sink" not in nodes[1]["linear"]
    assert "attention.sink reaches gqa, not linear" in found.manifest.remarks


def test_code_and_key_hold_every_variant(plan):
    planned = plan("ffn=mlp,mlp+glu,glu+mlp", "seeds=1", "model.layers=2")
    assert len({path.rpartition("-")[2] for path in planned.todo}) == 3
    used = {name.rpartition(".")[2] for name in code_of(planned.manifest.cells[1].config).definitions}
    assert {"MLP", "GLU"} <= used and "SwiGLU" not in used


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("ffn=4mlp+glu", ["ffn", "5 layers", "model.layers=6"]),
        ("ffn=[mlp,glu]", ["ffn=mlp,glu", "ffn=mlp+glu"]),
        ("residual=pre+post", ["residual", "PreNorm", "PostNorm"]),
        ("ffn=mlp+glu,mlp+glu+mlp+glu+mlp+glu", ["is the same configuration as"]),
        ("init=gpt2+xavier", ["init", "norm, ffn, residual, attention"]),
        ("attention=linear+gqa +attention.value_residual=identity", ["LinearAttention", "hands on none"]),
        ("residual=pre+hyper_connections", ["residual", "PreNorm has 1", "HyperConnections has 4"]),
        ("+attention.value_residual=identity model.layers=1", ["attention.value_residual", "model.layers=2"]),
        ("ffn=mlp+glu model.share_layers=true", ["model.share_layers: "]),
    ],
)
def test_what_does_not_fit_is_one_line(refused, words, told, monkeypatch):
    monkeypatch.setattr("ablate.planning.checks.inspect.try_out", TRY_OUT)
    [line] = refused(LAYERS, *words.split())
    assert all(word in line for word in told)


def test_norms_outside_of_the_blocks_are_those_of_the_last_layer(plan):
    (cell,) = plan("residual=post+deepnorm", "norm=rms+ln", "seeds=1", "model.layers=2").study.rows
    assert built(cell).final_norm is None, "neither style has one"
    assert [type(block).__name__ for block in built(cell).blocks[:2]] == ["PostNorm", "DeepNorm"]
    assert not [note for note in cell.notes if "outside of the layers" in note]
    (cell,) = plan("norm=ln+rms", "model.norm_embeddings=true", "model.layers=2").study.rows
    model = built(cell)
    assert [type(block.norms[0]).__name__ for block in model.blocks[:2]] == ["LayerNorm", "RMSNorm"]
    assert {type(norm).__name__ for norm in (model.embed_norm, model.final_norm)} == {"RMSNorm"}
    [note] = [note for note in cell.notes if "outside of the layers" in note]
    assert note.startswith("embed_norm and final_norm outside of the layers: norm=rms")
