"""A command line that would not end: a line."""

import time

import pytest

from ablate.config.errors import Problem
from ablate.config.groups import read_groups
from ablate.config.words import read_words


@pytest.mark.parametrize("value", ["range(1,1e9)", "range(1,inf)"])
def test_a_range_is_not_written_out(value):
    began = time.process_time()
    _, refused = read_words([f"train.batch_size={value}"], read_groups())
    problem = Problem(f"train.batch_size={value}", "has too many values; a sweep has at most 10,000")
    assert refused == [problem]
    assert time.process_time() - began < 5
