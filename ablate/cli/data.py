"""`ablate data prepare`: the corpus of a task made once, ahead of the plan that would make it.

    ablate data prepare data=text data.path=FILE data.tokenizer=gpt2 [--config-dir DIR]

A killed preparation begins again.  Exit codes: 0 prepared; 2 the text cannot be prepared.
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
    echo("\n".join([f"{task.title}: {', '.join(counts)}", *task.notes, f"fingerprint {corpus.fingerprint}"]))
    return Outcome(0, {"tokens": sizes, "fingerprint": corpus.fingerprint})
