"""`ablate data prepare`: the corpus of a task made once, ahead of the plan that would make it.

    ablate data prepare data=text data.path=FILE data.tokenizer=gpt2 [--verify] [--config-dir DIR]

A killed preparation begins again.  --verify reads every shard, and compares it with the index.
Exit codes: 0 prepared, and as it was written; 1 files differ from the index; 2 the text cannot be prepared.
"""

from argparse import Namespace

from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, PlainParser, conclude
from ablate.data.language import LanguageModelling
from ablate.data.task import build_task
from ablate.formatting.streams import echo


def main(arguments: list[str] | None = None) -> int:
    """Prepare a corpus; returns the exit code."""
    parser = PlainParser("ablate data", "The corpus of a task, prepared once.")
    parser.add_argument("action", choices=["prepare"], metavar="prepare")
    parser.add_argument("words", nargs="+", metavar="data=text data.path=FILE", help="as in a sweep's command")
    parser.add_argument("--verify", action="store_true", help="read all files and compare them with the index")
    parser.add_argument("--config-dir", help="a folder with groups of your own")
    options = parser.parse_intermixed_args(arguments)
    return conclude(parser.prog, options.json, lambda: prepare(options))


def prepare(options: Namespace) -> Outcome:
    """Prepare the corpus of the task that the words choose, and print its size.  Raises PlanError and Refused."""
    from ablate.planning.plan import check_cell  # loads torch

    task = build_task(check_cell(options.words, options.config_dir))
    if not isinstance(task, LanguageModelling):
        raise Refused(f"{task.title} has no text to prepare; write data=text, hf, mlm or tokens")
    corpus = task.corpus
    sizes = {split: len(tokens) for split, tokens in corpus.tokens.items()}
    counts = [f"{size:,} tokens of {split}" for split, size in sizes.items()]
    where = f"in {corpus.folder}" if corpus.folder else "below 64 MB: read into memory, nothing to prepare"
    lines = [f"{task.title}: {', '.join(counts)}", *task.notes, f"fingerprint {corpus.fingerprint}", where]
    echo("\n".join(lines))
    code = 0
    if options.verify and task.verified():
        echo("all files are as they were written")
    elif options.verify:
        echo(f"files differ from the index; remove {corpus.folder} and prepare it again")
        code = 1
    return Outcome(code, {"tokens": sizes, "fingerprint": corpus.fingerprint, "folder": corpus.folder})
