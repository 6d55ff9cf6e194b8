"""What attends to the source: as `attention` does, or a choice of its own."""

from empty_task import Blank
from model_variants import CONTEXT, VOCAB, built, configuration

from ablate.model.attention import MHA
from ablate.model.cost import count

ACROSS = ("encoder_decoder", "seq2seq")


def test_a_choice_of_its_own_stands_between_the_stacks_alone():
    model = built({"attention": "gated", "cross_attention": "mha"}, form=ACROSS)
    for block in model.decoder.blocks:  # type: ignore[union-attr]
        assert type(block.cross_attention) is MHA and type(block.attention).__name__ == "Gated"
    assert all(block.cross_attention is None for block in model.encoder.blocks)  # type: ignore[union-attr]


def test_where_nothing_is_attended_to_across_a_plan_says_so():
    chosen, plain = (count(configuration(cell), Blank(VOCAB, CONTEXT)) for cell in ({"cross_attention": "mha"}, {}))
    assert chosen.unused == ("cross_attention",) and any("cross_attention=" in note for note in chosen.notes)
    assert plain.unused == () and plain.notes == []
