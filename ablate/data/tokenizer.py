"""Tokenisation: bytes, characters, byte-level byte-pair encoding, words, or a tokenizer made elsewhere."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.config.ranges import at_least
from ablate.formatting import instead, listed

SEPARATOR = "\0"  # ends each document if there are several
SIZES = {"bpe": 1024, "word": 8192}  # default vocabulary sizes
LEAST = {"bpe": 257, "word": 3}  # the bytes and the end of a text; <unk>, the end of a text and a word
LEARNED = ("byte", "char", *SIZES)
PUBLISHED = ("gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base")  # of tiktoken
ENDS = (SEPARATOR, "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")  # of a document
WORD = re.compile(r"\w+|\n|[^\w\s]")
CHUNK = 100_000  # characters tokenised at once: each takes a hundred bytes or more of memory


def check_size(tokenizer: str, vocab_size: int | None) -> int | None:
    """The vocabulary size to learn, None if it is not chosen.  Raises ValueError for invalid combinations."""
    if tokenizer not in (*LEARNED, *PUBLISHED) and not tokenizer.endswith(".json"):
        hint = instead(tokenizer, [*LEARNED, *PUBLISHED])
        raise ValueError(f"data.tokenizer={tokenizer!r} is not a choice; {hint} (or name a tokenizer.json)")
    if tokenizer in SIZES:
        return SIZES[tokenizer] if vocab_size is None else at_least("data.vocab_size", vocab_size, LEAST[tokenizer])
    if vocab_size is not None:
        where = f"is for data.tokenizer=bpe or word, not {tokenizer}"
        raise ValueError(f"data.vocab_size={vocab_size} {where}; leave it null")
    return None


def units(name: str, text: bytes, tokenizer: str, end: str = "") -> Any:
    """A document and its end as bytes or characters, at which it may be cut.  Raises ValueError if it is not UTF-8."""
    if tokenizer == "byte":
        return text + end.encode()
    try:
        return text.decode() + end
    except UnicodeDecodeError as error:
        problem = f"needs UTF-8 text, and {name} (byte {error.start}) is not"
        raise ValueError(f"data.tokenizer={tokenizer} {problem}; write data.tokenizer=byte") from None


def learn(tokenizer: str, vocab_size: int | None, train: Iterable[str], others: Iterable[str] = ()) -> str:
    """What a tokenizer is besides its name: the alphabet of all texts, the words of the train split by id as JSON, a
    tokenizer trained on the train split as JSON, the content of a tokenizer.json."""
    if tokenizer == "char":
        alphabets = [np.unique(code_points(text)) for text in itertools.chain(train, others)]
        return "".join(map(chr, np.unique(np.concatenate(alphabets)).tolist()))
    if tokenizer == "word":
        counts = Counter(word for text in train for word in words_of(text))
        del counts[SEPARATOR]
        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        return json.dumps(["<unk>", SEPARATOR, *by_frequency][:vocab_size])
    if tokenizer == "bpe":
        assert vocab_size
        library = train_bpe(train, vocab_size)
    elif tokenizer.endswith(".json"):
        library = read_tokenizer(Path(tokenizer).expanduser())
    else:
        return ""
    return json.dumps(json.loads(library.to_str()), ensure_ascii=False, sort_keys=True)  # not in a hash table's order


class Bytes:
    """Each byte is an id."""

    vocab = 256
    dtype = np.dtype(np.uint8)

    def encode(self, text: bytes) -> np.ndarray:
        """The ids (N,) of a text."""
        return np.frombuffer(text, np.uint8)


class Characters:
    """The ids of characters are their places in a sorted alphabet."""

    dtype = np.dtype(np.uint32)

    def __init__(self, alphabet: str):
        self.points = code_points(alphabet)
        self.vocab = len(self.points)

    def encode(self, text: str) -> np.ndarray:
        """The ids (N,) of a text."""
        return np.searchsorted(self.points, code_points(text)).astype(np.uint32)


class Words:
    """Words by their places in a vocabulary; the others are 0, <unk>."""

    dtype = np.dtype(np.uint32)

    def __init__(self, words: list[str]):
        self.ids = {word: i for i, word in enumerate(words)}
        self.vocab = len(words)

    def encode(self, text: str) -> np.ndarray:
        """The ids (N,) of a text."""
        return np.fromiter((self.ids.get(word, 0) for word in words_of(text)), np.uint32)


class Subwords:
    """A tokenizer of a library, given `CHUNK` characters at a time; the id `end` stands for `SEPARATOR`."""

    def __init__(self, vocab: int, ids_of: Callable[[str], list[int]], end: int):
        self.vocab = vocab
        self.ids_of = ids_of
        self.end = end
        self.dtype = np.dtype(np.uint16 if vocab <= 2**16 else np.uint32)

    def encode(self, text: str) -> np.ndarray:
        """The ids (N,) of a text."""
        ids = [np.empty(0, self.dtype)]
        for part in chunks(text.removesuffix(SEPARATOR), CHUNK):
            ids.append(np.array(self.ids_of(part), self.dtype))
        if text.endswith(SEPARATOR):
            ids.append(np.array([self.end], self.dtype))
        return np.concatenate(ids)


def codec(tokenizer: str, state: str) -> Bytes | Characters | Words | Subwords:
    """A tokenizer from its name and what it learned.  Raises ValueError if its library or its file is missing."""
    if tokenizer == "byte":
        return Bytes()
    if tokenizer == "char":
        return Characters(state)
    if tokenizer == "word":
        return Words(json.loads(state))
    if tokenizer in PUBLISHED:
        encoding = published(tokenizer)
        return Subwords(encoding.n_vocab, encoding.encode_ordinary, encoding.eot_token)
    library = extra("tokenizers", f"data.tokenizer={tokenizer}").Tokenizer.from_str(state)
    library.no_truncation()  # many a tokenizer.json says how a model's input is to be cut and padded
    library.no_padding()
    ends = [library.token_to_id(end) for end in ENDS if library.token_to_id(end) is not None]
    if not ends:
        raise ValueError(f"data.tokenizer={tokenizer} has no end of a document; it needs one of {listed(ENDS[1:])}")

    def ids_of(text: str) -> list[int]:
        return list(library.encode(text, add_special_tokens=False).ids)

    return Subwords(max(library.get_vocab().values()) + 1, ids_of, ends[0])


def words_of(text: str) -> Iterator[str]:
    """The words of a text: runs of letters, digits and underscores; other characters except spaces are single words.
    Case matters.  Line ends are words; spaces and tabs are not, so that decoding cannot restore them."""
    return (match.group() for match in WORD.finditer(text))


def code_points(text: str) -> np.ndarray:
    """The Unicode numbers (N,) of a text's characters."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def read_tokenizer(file: Path) -> Any:
    """The tokenizer of a tokenizer.json.  Raises ValueError."""
    library = extra("tokenizers", f"data.tokenizer={file}")
    try:
        return library.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself, also for files that do not exist
        raise ValueError(f"data.tokenizer={file} is no tokenizer.json ({one_line(error)[:200]})") from None


def published(name: str) -> Any:
    """An encoding of tiktoken, which downloads its merges once.  Raises ValueError if it cannot be downloaded."""
    library = extra("tiktoken", f"data.tokenizer={name}")
    try:
        return library.get_encoding(name)
    except Exception as error:  # of the network, the disk, or the file's checksum
        why = one_line(error)[:120]
    where = "copy its cache folder from another machine and set TIKTOKEN_CACHE_DIR"
    raise ValueError(f"data.tokenizer={name} cannot be downloaded ({why}); {where}")


def train_bpe(texts: Iterable[str], vocab_size: int) -> Any:
    """Train a tokenizer with at most `vocab_size` ids; the first are the end of a document and the bytes."""
    library = extra("tokenizers", "data.tokenizer=bpe")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces = (piece for text in texts for piece in chunks(text.removesuffix(SEPARATOR), CHUNK))
    tokenizer.train_from_iterator(pieces, trainer)
    return tokenizer


def chunks(text: str, size: int) -> list[str]:
    """Split text into pieces of more than `size` characters, before white space that follows another character.  Merges
    never cross word boundaries, so the pieces give the same tokens as the whole."""
    return re.findall(rf"(?s).{{{size},}}?\S(?=[ \n])|.+", text)
