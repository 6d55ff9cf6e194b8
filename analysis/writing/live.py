"""The page of `ablate watch`: a study while it is trained, read from disk, for the browser of this machine.  Nothing is
written."""

import contextlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pandas

from ablate.config.errors import Refused
from ablate.runs import naming, progress
from ablate.runs.manifest import refusing, study_folder
from ablate.runs.records import Manifest
from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.writing.chart import chart
from analysis.writing.page import page, sections_html
from analysis.writing.sections import Section, claims, notes, overall, sentences, warnings
from analysis.writing.tables import Table

HOST = "127.0.0.1"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
REST = 10  # pause before curves and verdicts are computed again, in times of what that took
MOST = 50  # failed runs that are listed
CLIENTS = 16  # requests that are answered at a time
BUSY = b"HTTP/1.0 503 too many requests at a time\r\n\r\n"
RUNNING = ["run", "step", "train/loss", "val/loss", "tokens/s", "left", "where"]
PROVISIONAL = (
    "Provisional: the intervals hold for the seeds that were planned, so do not stop the study or add seeds because of "
    "what they show now."
)


class State(NamedTuple):
    """What the page shows: title, HTML before and after the curves, version of these, whether all is over."""

    title: str
    first: str
    rest: str = ""
    version: int = 0
    over: bool = False


class Live:
    """A study on disk as its page shows it.  Curves and verdicts are computed again when a run has logged or ended."""

    def __init__(self, results: Path, base: str):
        self.results = results
        self.base = base
        self.lock = threading.Lock()
        self.polls = iter(list[list[progress.Round]]())
        self.key: Any = None
        self.due = 0.0  # when curves and verdicts may be computed again
        self.version = 0
        self.verdicts = Section("verdicts", "Verdicts as they stand")
        self.curves: dict[str, Any] | None = None

    def state(self) -> State:
        """The state of the study; of one that cannot be read, why."""
        with self.lock:
            try:
                rounds = next(self.polls, [])
                if not rounds:  # at first, and when all has ended, as more may be planned
                    self.polls = progress.polls(self.results, self.base, lambda _: None)
                    rounds = next(self.polls)
            except Refused as error:
                problem = [Section("problem", "The study cannot be read", [str(error)])]
                return State(self.base, sections_html(problem))
            runs = progress.together(rounds)
            manifest = rounds[-1].manifest
            is_current = self.judge(manifest, (manifest, [(run.result_stamp, run.step) for run in runs]))
            is_over = progress.is_over(rounds) and not progress.unsettled(rounds)
            report = f"Every run has ended; the report: ablate analyse {manifest.study}"
            standing = [*progress.standing(rounds), report if is_over else progress.idle(rounds)]
            states = runs.by_state()
            lost = [*states.get("failed", []), *states.get("diverged", [])]
            failures = [f"{run.name}: {run.ending()} ({run.run.result_file})" for run in lost[:MOST]]
            failures += progress.damage(runs)[:MOST]
            expected = runs.expected_seconds()
            rows = pandas.DataFrame([run.row(expected) for run in states.get("running", [])], columns=RUNNING)
            running = Table("running", "Runs in training", rows)
            first = [Section("progress", naming.title(manifest), [line for line in standing if line], tables=[running])]
            rest = [self.verdicts]
            if failures:
                rest.insert(0, Section("lost", "What failed, and why?", items=failures))
            title = f"{runs.ended()}/{len(runs)} · {naming.title(manifest)} · ablate watch"
            over = is_over and is_current
            return State(title, sections_html(first), sections_html(rest), self.version, over)

    def judge(self, manifest: Manifest, key: Any) -> bool:
        """Compute curves and verdicts if files have changed, unless that was a moment ago; whether they are current."""
        started = time.monotonic()
        if key == self.key or started < self.due:
            return bool(key == self.key)
        title = "Verdicts as they stand"
        try:
            with refusing(study_folder(self.results, manifest.study)):
                study = load_study(self.results, manifest.study, manifest)
                case = case_of(study, self.results / "figures" / manifest.study)
                self.curves = chart(case, "missing")
                text = [PROVISIONAL, *warnings(case), *overall(case), *notes(case)]
                items = [] if naming.no_evidence(manifest) else [*claims(case), *sentences(case)]
                self.verdicts = Section("verdicts", title, [line for line in text if line], items=items)
        except Refused as error:
            self.verdicts = Section("verdicts", title, [str(error)])
        self.key = key
        self.version = time.time_ns()
        self.due = time.monotonic() + REST * (time.monotonic() - started)
        return True


class Server(ThreadingHTTPServer):
    """Serves the page, its state and its curves to who knows its token.  Raises OSError if the port is in use."""

    daemon_threads = True

    def __init__(self, live: Live, port: int):
        super().__init__((HOST, port), Handler)
        self.places = threading.BoundedSemaphore(CLIENTS)
        self.path = f"/{secrets.token_urlsafe(16)}/"
        empty: dict[str, Any] = {"lead": [], "facts": [], "warnings": [], "first": [], "rest": []}
        page_text = page(None, live=True, title=live.base, **empty)
        self.content = {
            "": lambda: page_text,
            "state.json": lambda: live.state()._asdict(),
            "curves.json": lambda: live.curves,
        }

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}{self.path}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread; one too many is turned away."""
        if self.places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.sendall(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()


class Handler(BaseHTTPRequestHandler):
    """Answers GET of the server's own addresses, which begin with its token."""

    server: Server
    timeout = 10  # seconds that a silent client may keep a thread

    def handle(self) -> None:
        """Answer one request; a client that has left is no error."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """Send what an address names; a page elsewhere does not know the token."""
        name = self.path.removeprefix(self.server.path)
        is_ours = secrets.compare_digest(self.path[: len(self.server.path)].encode(), self.server.path.encode())
        if not is_ours or name not in self.server.content:
            self.send_error(404)
            return
        answer = self.server.content[name]()
        kind = "application/json" if name else "text/html"
        content = (json.dumps(answer) if name else str(answer)).encode()
        self.send_response(200)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content)), **HEADERS}
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""
