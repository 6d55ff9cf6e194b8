"""What tests of training share."""

from collections.abc import Callable

import pytest

from ablate.config.schema import Config


@pytest.fixture
def config_of(plan) -> Callable[..., Config]:
    """The resolved configuration of the first cell of a command line on the small text."""
    return lambda *words: plan(*words, "seeds=1").manifest.cells[0].config
