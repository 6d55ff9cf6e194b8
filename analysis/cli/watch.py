"""ablate watch [STUDY]: a page on 127.0.0.1 that follows a study while it is trained.

Exit codes: 2 no such study, or the port is in use; 130 Ctrl-C.
"""

import argparse

from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo
from ablate.runs.progress import find

PORT = 8642


def main(arguments: list[str] | None = None) -> int:
    """Serve the page until Ctrl-C; returns the exit code."""
    parser = Parser("ablate watch", "A page in the browser that follows a study while it is trained.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name (default: the newest)")
    parser.add_argument("--port", metavar="N", type=int, default=PORT, help="of the page (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.json:
        parser.error("--json is for what ends; leave it out, or write ablate status --json")
    return conclude(parser.prog, False, lambda: _watch(options))


def _watch(options: argparse.Namespace) -> Outcome:
    study = find(options.results_dir, options.study)
    from analysis.writing.live import Live, Server  # slow to import, and not needed for error messages

    try:
        server = Server(Live(options.results_dir, study), options.port)
    except (OSError, OverflowError) as error:
        raise Refused(f"--port {options.port} cannot be opened ({error}); write another") from None
    with server:
        echo(f"{study}: {server.address} (Ctrl-C ends)")
        server.serve_forever()
    return Outcome(0)
