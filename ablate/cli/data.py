"""`ablate data prepare`: the corpus of a task made once, ahead of the plan that would make it.

    ablate data prepare data=text data.path=FILE data.tokenizer=gpt2 [--verify] [--config-dir DIR]

A killed preparation begins again.  --verify reads every shard, and compares it with the index.
Exit codes: 0 prepared, and as it was written; 1 files differ from the index; 2 the text cannot be prepared.
"""

from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, PlainParser, conclude
from ablate.data.language import LanguageModelling


def main(arguments: list[str] | None = None) -> int:
    """Prepare a corpus; returns the exit code."""
    parser = PlainParser("ablate data", "The corpus of a task, prepared once.")
    parser.add_argument("action", choices=["prepare"], metavar="prepare")
    parser.add_argument("words", nargs="+", metavar="data=text data.path=FILE", help="as in a sweep's command")
    parser.add_argument("--verify", action="store_true", help="read all files and compare them with the index")
    parser.add_argument("--config-dir", help="a folder with groups of your own")
    given = parser.parse_intermixed_args(arguments)

    def act() -> Outcome:
        from ablate.planning.plan import check_cell  # loads torch

        task = check_cell(given.words, given.config_dir).task
        if not isinstance(task, LanguageModelling):
            raise Refused(f"{task.title} has no text to prepare; write data=text, hf, mlm or tokens")
        corpus = task.corpus
        sizes = {split: len(tokens) for split, tokens in corpus.tokens.items()}
        print(f"{task.title}: {', '.join(f'{size:,} tokens of {split}' for split, size in sizes.items())}")
        where = f"in {corpus.folder}" if corpus.folder else "below 64 MB: read into memory, nothing to prepare"
        print(*task.notes, f"fingerprint {corpus.fingerprint}", where, sep="\n")
        same = not given.verify or task.verified()
        if given.verify:
            again = f"files differ from the index; remove {corpus.folder} and prepare it again"
            print("all files are as they were written" if same else again)
        return Outcome(int(not same), {"tokens": sizes, "fingerprint": corpus.fingerprint, "folder": corpus.folder})

    return conclude(parser.prog, given.json, act)
