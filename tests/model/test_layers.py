"""What stands in the layers of a stack knows which one it is in, where it asks for it."""

from empty_task import Blank
from reference_config import CONFIG
from torch import nn

from ablate.config.components import argument_problems, offered_names
from ablate.config.schema import Config, typed
from ablate.model.attention import GQA
from ablate.model.build import build_model
from ablate.model.norm import LayerNorm
from ablate.model.residual import PreNorm


class Norm(LayerNorm):
    def __init__(self, dim: int, eps: float, layer: int | None, layers: int):
        super().__init__(dim, eps)
        self.layer, self.layers = layer, layers


class FFN(nn.Linear):
    def __init__(self, dim: int, layer: int):
        super().__init__(dim, dim)
        self.layer = layer


class Attention(GQA):
    def __init__(self, shape, kv_heads: int | None, bias: bool, scale: float | None, layer: int):
        super().__init__(shape, kv_heads, bias, scale)
        self.layer = layer


class Block(PreNorm):
    def __init__(self, shape, sublayers, layer: int):
        super().__init__(shape, sublayers)
        self.layer = layer


def asking(**model: object) -> Config:
    """A configuration all of whose parts are those above, of a package of the user's own, and ask for their layer."""
    settings = {"norm": {"eps": 1e-5}, "attention": {"kv_heads": None, "bias": False, "scale": None}}
    names = {"norm": "Norm", "ffn": "FFN", "attention": "Attention", "residual": "Block"}
    parts = {group: settings.get(group, {}) | {"_target_": f"{__name__}.{name}"} for group, name in names.items()}
    return typed(CONFIG | parts | {"user": [__name__], "model": CONFIG["model"] | {"layers": 3} | model})


def test_each_part_of_a_block_is_given_its_layer_from_0_and_norms_elsewhere_have_none():
    form = {"_target_": "ablate.model.transformer.EncoderDecoder", "norm_embeddings": True}
    model = build_model(asking(**form), Blank(11, kind="seq2seq"))
    for stack in (model.encoder, model.decoder):
        for layer, block in enumerate(stack.blocks):
            across = [block.cross_attention] if block.cross_attention else []
            parts = [block, block.attention, *across, block.ffn, *block.norms]
            assert [part.layer for part in parts] == [layer] * len(parts)
        assert stack.embed_norm.layer is None and stack.final_norm.layer is None and stack.final_norm.layers == 3


def test_a_layer_that_is_set_by_hand_is_refused():
    node = {"_target_": f"{__name__}.FFN", "layer": 1}
    assert [key for key, _ in argument_problems("ffn", node, offered_names("ffn"), [__name__])] == ["ffn.layer"]
