"""What a plan says of embeddings: frozen ones, those without a place, and words beyond the vocabulary."""

from typing import Any

import pytest

from ablate.config.errors import PlanError
from ablate.planning.plan import plan_study

WORDS = "data.tokenizer=word"


def test_numbers_have_no_table(small: list[str]) -> None:
    given = [word for word in small if not word.startswith("data")]
    for chosen in ("embedding=learned,random", "embedding=factorised", "embedding.frozen=true"):
        with pytest.raises(PlanError, match=r"^embedding: [^\n]*$"):
            plan_study([*given, "data=digits", "model=encoder", chosen])


def test_the_plan_counts_unknown_words(plan: Any, refused: Any) -> None:
    found = plan(WORDS, "data.vocab_size=9", "norm=ln,rms")
    (note,) = [note for note in found.manifest.cells[0].notes if "<unk>" in note]
    assert "% of test" in note
    assert "the 9 of the vocabulary" in note
    assert "data.vocab_size must be ≥ 3" in refused(WORDS, "data.vocab_size=2")[0]


def test_a_plan_warns_of_cells_that_are_scored_on_other_tasks(plan: Any, untried: None) -> None:
    (note,) = [note for note in plan(WORDS, "data.vocab_size=5,9").notes if "another task" in note]
    assert note.startswith("data.vocab_size=9: ") and "no effect" in note
    both = plan(WORDS, "data.vocab_size=5,9", "norm=ln,rms")
    assert not [note for note in both.notes if "another task" in note], "compared within each"
