"""Texts of token ids, to compare with what was tokenised."""

import json
from collections.abc import Iterable

from ablate.config.extra import extra
from ablate.data.corpus import Corpus
from ablate.data.tokenizer import PUBLISHED


def decoded(corpus: Corpus, ids: Iterable[int]) -> str:
    """Decode ids; bytes that are not UTF-8 become U+FFFD, words are joined by single spaces."""
    found = [int(i) for i in ids]
    match corpus.tokenizer:
        case "byte":
            return bytes(found).decode(errors="replace")
        case "char":
            return "".join(corpus.state[i] for i in found)
        case "word":
            known = json.loads(corpus.state)
            return " ".join(known[i] for i in found)
        case "token":
            return " ".join(map(str, found))
        case name if name in PUBLISHED:
            return str(extra("tiktoken", "decoding").get_encoding(name).decode(found))
    return str(
        extra("tokenizers", "decoding").Tokenizer.from_str(corpus.state).decode(found, skip_special_tokens=False)
    )
