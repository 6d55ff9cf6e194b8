"""Settings of a variant as levels, norm=rms,group(groups=4): what they set, how they are called, what is refused."""

import pytest
import yaml
from composed import composed

from ablate.config.choices import settings_in_parentheses, variant_of
from ablate.planning.plan import configuration_as_yaml

pytestmark = pytest.mark.usefixtures("untried", "uncounted")


@pytest.mark.parametrize(
    ("choice", "keys"),
    [
        ("norm=group(groups=4) ", ["norm=group", "norm.groups=4"]),
        ("norm=group( groups = 4, eps=1e-3 )", ["norm=group", "norm.groups=4", "norm.eps=1e-3"]),
        ("attention=mha(qk_norm=rms,sink=zero)", ["attention=mha", "+attention.qk_norm=rms", "+attention.sink=zero"]),
        ("data=sort(length=4)", ["data=sort", "data.length=4"]),  # also the name of a function of Hydra's
        ("optim=adamw(betas=[0.8,0.9])", ["optim=adamw", "optim.betas=[0.8,0.9]"]),
        ("+preset=qwen3 attention=qk_norm(kv_heads=1)", ["+preset=qwen3", "attention=qk_norm", "attention.kv_heads=1"]),
    ],
)
def test_settings_are_those_of_keys(choice, keys):
    words = choice.split() if "preset" in choice else [choice]
    with_settings = composed(*words)
    by_keys = composed(*keys)
    assert with_settings.config == by_keys.config
    group, _, name = words[-1].partition("=")
    assert with_settings.choices == by_keys.choices | {group: name.strip(" '")}


def test_a_pattern_gives_each_variant_its_own_settings(plan):
    pattern = "2window(window=4)+window(window=10,scale=1e+0)+mha"
    found = plan(f"attention={pattern},mha", "attention.bias=true", "model.layers=4", "seeds=1")
    node = found.manifest.cells[0].config.attention
    assert node["_layers_"] == ["window(window=4)"] * 2 + ["window(window=10,scale=1e+0)", "mha"]
    assert [node[name].get("window") for name in node["_layers_"]] == [4, 4, 10, None]
    assert node["window(window=10,scale=1e+0)"]["scale"] == 1.0 and all(node[name]["bias"] for name in node["_layers_"])
    assert found.manifest.factors == {"attention": [pattern, "mha"]}
    assert found.manifest.cells[0].name.split("-")[4] == "2window+window+mha"
    assert {"attention=window", "attention=mha"} <= found.manifest.papers.keys()
    (cell,) = plan("norm=group(groups=8)", f"attention={pattern}", "model.layers=4", "seeds=1").manifest.cells
    assert cell.label == f"group(groups=8)-mlp-pre-rope-{pattern}-smallinit", (
        "a label keeps the settings, not the folder"
    )
    assert cell.name == "group-mlp-pre-rope-2window+window+mha-smallinit"


def test_levels_with_settings_are_named_in_all_of_a_study(plan, tmp_path):
    (tmp_path / "experiment").mkdir()
    levels = ["mlp", "swiglu(mult=2)", "swiglu(bias=true, mult=3)"]
    norms = ["group(groups=4, model.norm_embeddings=true)", "rms(init=gpt2)"]  # settings of others are not in the name
    claims = {
        "narrow": {"less": [{"ffn": "swiglu(mult=2)"}, {"ffn": ["mlp", "swiglu(bias=true, mult=3)"]}]},
        "groups": {"less": [{"norm": "group(groups=4)"}, {"norm": "rms"}]},
    }
    text = {"factors": {"ffn": levels, "norm": norms}, "claims": claims, "seeds": 1}
    (tmp_path / "experiment" / "own.yaml").write_text(yaml.dump(text))
    found = plan("+experiment=own", config_dir=str(tmp_path)).manifest
    assert found.factors == {"ffn": levels, "norm": ["group(groups=4)", "rms"]}
    assert found.reference == {"ffn": "mlp", "norm": "group(groups=4)"}
    assert found.cells[2].label == "swiglu(mult=2) + group(groups=4)" and found.cells[2].config.model.norm_embeddings
    assert found.cells[1].config.init["_target_"].endswith("GPT2")
    assert found.claims.keys() == {"narrow", "groups"}
    by_keys = plan("ffn=swiglu", "norm=group", "norm.groups=4", "ffn.mult=2", "seeds=1")
    assert {*by_keys.todo} <= {*plan("norm=rms,group(groups=4)", "ffn=mlp,swiglu(mult=2)", "seeds=1").todo}, (
        "a run is one run"
    )


def test_the_configuration_that_is_shown_has_settings_and_patterns():
    words = ["norm=group(groups=4)", "attention=window(window=4)+mha", "model.layers=2", "seeds=1"]
    shown = yaml.safe_load(configuration_as_yaml(words, None, "all"))
    assert shown["norm"]["groups"] == 4 and shown["attention"]["_layers_"] == "window(window=4)+mha"
    assert shown["attention"]["window(window=4)"]["window"] == 4 and shown["hydra"]["job"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("norm=rms,grop(groups=4)", "norm=grop(groups=4): no such norm; did you mean group?"),
        ("norm=rms,group(gruops=4)", "norm.gruops: GroupNorm has no such argument; it has eps,"),
        ("norm=rms,ln+group(groups=three)", "norm.groups: 'three' is not of type int"),
        ("norm=group(groups=3)", "norm.groups: must divide the width 16, not 3"),
        ("norm=rms,ln(3)", "norm=ln(3): 3 has no name; parentheses after a variant hold settings"),
        ("norm=group(groups=4),rms norm.eps=1 norm.groups=8", "norm.groups is given, swept or tuned elsewhere, too"),
        ("+preset=qwen3(dim=8)", "preset takes no settings in parentheses; write keys, as in model.dim=128"),
        ("norm=ln(_target_=os.system)", "norm=ln(_target_=os.system): _target_ cannot come with a level"),
        ("norm=group(groups=4,groups=8)", "gives groups twice; write it once"),
        ("norm=rms,group(groups=4),group norm.groups=2", "norm=rms has no such key"),
        (
            "norm=group(norm.groups=4)",
            "norm.groups is no setting of group; its own have bare names, as in groups=VALUE",
        ),
        ("user=[os](x=1)", "user=[os](x=1): cannot be read"),
        ("ffn=mlp+glu tune.key=ffn.bias tune.values=[true,false] model.layers=2", "has no ffn.bias"),
    ],
)
def test_what_is_wrong_with_settings_is_a_line(refused, words, message):
    assert any(message in line for line in refused(*words.split()))


def test_settings_are_split_outside_of_lists():
    assert settings_in_parentheses("adamw(betas=[0.8,0.9],eps=1e-9)") == [("betas", "[0.8,0.9]"), ("eps", "1e-9")]
    assert settings_in_parentheses("power(a=[[1,2],[3]],b='x,y',c=4)") == [
        ("a", "[[1,2],[3]]"),
        ("b", "'x,y'"),
        ("c", "4"),
    ]
    assert (
        settings_in_parentheses("power({a: 1, b: 2})") == [("", "{a: 1, b: 2}")] and settings_in_parentheses("ln") == []
    )
    assert variant_of("text(path='a(b')") == "text"
    assert variant_of("3window(window=8)+mha(sink=zero)...") == "3window+mha..."
