"""`embedding=word2vec`: vectors that predict the context of a word, or a word from its context."""

import time
import zlib
from collections.abc import Sequence

import numpy as np

from ablate.config.extra import extra
from ablate.config.ranges import BadValue, at_least
from ablate.model.embedding import Pretrained

LONGEST = 10_000  # maximal ids per sentence; gensim drops the rest
TRIAL_IDS = 50_000  # ids of a trial to estimate the time
OBJECTIVES = {"cbow": 0, "skipgram": 1}


class Word2Vec(Pretrained):
    """Rows start as word2vec vectors (Mikolov 2013, arXiv 1301.3781), with negative sampling (arXiv 1310.4546).

    skipgram maximises log σ(u_c · v_w) + Σ_n log σ(−u_n · v_w) over pairs of a word w and a context word c; cbow does
    the same for the mean of the context's vectors and the word.  The context are ids of the same document within at
    most `window` positions; its size is drawn anew at each position.
    """

    late = ("shared", "objective", "window", "negative", "subsample", "epochs", "lr")

    def __init__(
        self,
        vocab: int,
        dim: int,
        width: int | None,
        frozen: bool,
        shared: bool,
        objective: str,
        window: int,
        negative: int,
        subsample: float,
        epochs: int,
        lr: float,
    ):
        super().__init__(vocab, dim, width, frozen, shared)
        if objective not in OBJECTIVES:
            raise BadValue("objective", f"{objective!r} is not a choice; write {' or '.join(OBJECTIVES)}")
        self.objective = objective
        self.window = at_least("window", window, 1)
        self.negative = at_least("negative", negative, 1)
        self.subsample = at_least("subsample", subsample, 0)
        self.epochs = at_least("epochs", epochs, 1)
        self.lr = at_least("lr", lr, 0)

    def vectors(self, documents: Sequence[np.ndarray], seed: int, epochs: int | None = None) -> np.ndarray:
        """Vectors after some passes over the documents, determined by the seed; NaN for ids that do not occur.

        An id with frequency f is kept with probability √(subsample / f) + subsample / f at each position, always if
        subsample is 0; the learning rate falls linearly from `lr` to 1e-4.
        """
        library = extra("gensim.models", "embedding=word2vec", "vectors")
        vocab, width = self.weight.shape
        sentences = sentences_of(documents, vocab)
        counts = np.bincount(np.concatenate([np.zeros(0, np.int64), *documents]), minlength=vocab)
        model = library.Word2Vec(
            vector_size=width,
            sg=OBJECTIVES[self.objective],
            window=self.window,
            negative=self.negative,
            sample=self.subsample,
            alpha=self.lr,
            min_alpha=min(1e-4, self.lr),
            min_count=1,
            seed=seed,
            hashfxn=lambda word: zlib.crc32(word.encode()),  # Python's hash differs between processes
            workers=1,  # several threads would update in random order
        )
        model.build_vocab_from_freq({str(i): int(n) for i, n in enumerate(counts) if n})
        model.train(
            sentences, total_examples=len(sentences), total_words=int(counts.sum()), epochs=epochs or self.epochs
        )
        vectors = np.full((vocab, width), np.nan, np.float32)
        for word, row in model.wv.key_to_index.items():
            vectors[int(word)] = model.wv.vectors[row]
        return vectors

    def expected_seconds(self, documents: Sequence[np.ndarray]) -> float:
        """Approximate CPU seconds of `vectors`, from one pass over the first ids."""
        trial = np.concatenate(documents)[:TRIAL_IDS]
        total = sum(len(document) for document in documents)
        extra("gensim.models", "embedding=word2vec", "vectors")  # its import is not part of the time
        start = time.process_time()
        self.vectors([trial], 0, 1)
        return (time.process_time() - start) * self.epochs * total / len(trial)


def sentences_of(documents: Sequence[np.ndarray], vocab: int) -> list[list[str]]:
    """Documents as sentences of words, cut at the maximal length."""
    words = [str(i) for i in range(vocab)]
    sentences = []
    for document in documents:
        for start in range(0, len(document), LONGEST):
            sentences.append([words[i] for i in document[start : start + LONGEST]])
    return sentences
