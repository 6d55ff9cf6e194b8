"""Hydra's parser of command-line words; also under `python -O`, which drops the asserts that step through its input."""

import functools
from pathlib import Path

from hydra.core.override_parser import overrides_parser, overrides_visitor
from hydra.core.override_parser.overrides_parser import OverridesParser


@functools.cache
def parser() -> OverridesParser:
    """The parser.  Its visitor consumes words in asserts, so that it is compiled again where Python left them out."""
    if not __debug__:
        file = Path(str(overrides_visitor.__file__))
        code = compile(file.read_text(encoding="utf-8"), str(file), "exec", optimize=0)
        exec(code, overrides_visitor.__dict__)
        overrides_parser.HydraOverrideVisitor = overrides_visitor.HydraOverrideVisitor
    return OverridesParser.create()
