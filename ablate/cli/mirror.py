"""The process beside a sweep that mirrors its runs to a tracking service while they are trained."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from ablate.cli import sync
from ablate.config.arguments import user_of
from ablate.execution.tracking.mirror import Mirror, one_line, say
from ablate.execution.tracking.wandb import follow
from ablate.format.streams import exit_with


def main() -> int:
    """Mirror a study; 0 whatever becomes of its tracking."""
    parser = argparse.ArgumentParser(
        prog="python -m ablate.cli.mirror", description="Mirror a study while it is trained"
    )
    parser.add_argument("study")
    parser.add_argument("user", nargs="?", default="user=[]", help="user=[my_package] for a service of your own")
    parser.add_argument("--results-dir", type=Path, default=os.environ.get("ABLATE_RESULTS", "results"))
    parser.add_argument("--follow", action="store_true", help="until standard input ends")
    options = parser.parse_args()
    if not options.follow:
        return sync.main([options.study, options.user, "--results-dir", str(options.results_dir)])
    os.nice(5)  # training goes first
    with contextlib.suppress(PermissionError):
        os.setsid()  # Ctrl-C is for the sweep, which ends this by ending; and without a terminal nothing can prompt
    try:
        follow(Mirror(options.results_dir, options.study, user_of([options.user])[1]))
    except OSError as error:
        say(f"tracking stopped ({one_line(error)})")
    return 0


if __name__ == "__main__":
    exit_with(main)
