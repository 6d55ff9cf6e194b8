"""What a plan says of embeddings: frozen ones, those without a place, and words beyond the vocabulary."""

from collections.abc import Sequence

import pytest
from conftest import latest

from ablate.config.errors import PlanError
from ablate.planning.plan import Plan, plan_study

VARIANTS = "embedding=learned,random,factorised"


def planned(small: Sequence[str], *overrides: str) -> Plan:
    return plan_study(latest(*small, *overrides), None)


def refused(small: Sequence[str], *overrides: str) -> str:
    with pytest.raises(PlanError) as error:
        planned(small, *overrides)
    assert len(error.value.problems) == 1, "one line"
    return str(error.value)


def test_variants_differ_in_their_table_alone_and_are_accused_of_nothing(small: list[str]) -> None:
    plan = planned(small, VARIANTS, "model.tie_embeddings=false")
    learned, random, _ = plan.manifest.cells
    assert random.params == learned.params and random.shared_draws == 1
    assert [row.name.count("embedding_") for row in plan.manifest.cells] == [0, 1, 1]
    assert [note for note in random.notes if "frozen" in note] and not [n for n in learned.notes if "frozen" in n]
    assert not [note for note in plan.notes if "never" in note]


def test_a_frozen_table_says_what_to_write_for_all_cells(small: list[str]) -> None:
    assert "model.tie_embeddings=false" in refused(small, VARIANTS)


def test_numbers_have_no_table(small: list[str]) -> None:
    given = [word for word in small if not word.startswith("data")]
    for chosen in ("embedding=learned,random", "embedding=factorised", "embedding.frozen=true"):
        assert refused(given, "data=digits", "model=encoder", chosen).startswith("embedding: ")


def test_the_plan_counts_unknown_words(small: list[str]) -> None:
    words = (*small, "data.tokenizer=word")
    plan = planned(words, "data.vocab_size=9", "norm=ln,rms")
    (note,) = [note for note in plan.manifest.cells[0].notes if "<unk>" in note]
    assert "% of test" in note and not plan.study.cells.checked[0].task.bytes_per_token
    assert "the 9 of the vocabulary" in note
    assert "data.vocab_size=2 is too small" in refused(words, "data.vocab_size=2")


def test_a_plan_warns_of_cells_that_are_scored_on_other_tasks(small: list[str]) -> None:
    words = (*small, "data.tokenizer=word", "data.vocab_size=5,9")
    (note,) = [note for note in planned(words).notes if "another task" in note]
    assert note.startswith("data.vocab_size=9: ") and "no effect" in note
    assert not [note for note in planned(words, "norm=ln,rms").notes if "another task" in note], "compared within each"
