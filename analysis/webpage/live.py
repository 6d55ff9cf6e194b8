"""The page of `ablate watch`: a study while it is trained, read from disk, for the browser of this machine.  Nothing is
written."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import plotly.offline

from ablate import evidence
from ablate.config.errors import Refused
from ablate.runs import naming, progress
from ablate.runs.manifest import refusing, study_folder
from ablate.runs.records import Manifest
from ablate.runs.study import load_study
from analysis.case import Case, case_of
from analysis.webpage import asset, policy, render, script
from analysis.webpage.curve_data import series
from analysis.writing.sections import claims, overall, verdicts

HOST = "127.0.0.1"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
REST = 10  # pause before curves and verdicts are computed again, in times of what that took
MOST = 50  # failed runs that are listed
CLIENTS = 16  # requests that are answered at a time
BUSY = b"HTTP/1.0 503 too many requests at a time\r\n\r\n"

State = dict[str, Any]


class Live:
    """A study on disk as its page shows it.  Curves and verdicts are computed again when a run has logged or ended."""

    def __init__(self, results: Path, base: str):
        self.results, self.base, self.lock = results, base, threading.Lock()
        self.polls = iter(list[list[progress.Round]]())
        self.key, self.due, self.version = None, 0.0, 0
        self.judged, self.curves = State(), State()

    def page(self) -> str:
        """The page, which its script fills with the state."""
        scripts = [script(plotly.offline.get_plotlyjs()), asset("curves.js"), asset("watch.js")]
        rules = f"{policy(scripts)}; connect-src 'self'"
        return render("watch.html", study=self.base, style=asset("report.css"), scripts=scripts, policy=rules)

    def state(self) -> State:
        """Progress, failures and verdicts; `version` is that of the curves.  A `problem` if it cannot be read."""
        with self.lock:
            try:
                rounds = next(self.polls, [])
                if not rounds:  # at first, and when all has ended, as more may be planned
                    self.polls = progress.polls(self.results, self.base, lambda _: None)
                    rounds = next(self.polls)
            except Refused as error:
                return {"problem": str(error)}
            runs, manifest = progress.together(rounds), rounds[-1].manifest
            fresh = self._judge(manifest, (manifest, [(run.result_stamp, run.pace) for run in runs]))
            states, expected = runs.by_state(), runs.expected_seconds()
            lost = [*states.get("failed", []), *states.get("diverged", [])]
            over = progress.is_over(rounds) and not progress.unsettled(rounds)
            report = f"every run has ended; the report: ablate analyse {manifest.study}"
            return self.judged | {
                "version": self.version,
                "title": naming.title(manifest),
                "standing": progress.standing(rounds),
                "counts": [runs.ended(), len(runs)],
                "over": over and fresh,
                "next": report if over else progress.idle(rounds),
                "running": [run.row(expected) for run in states.get("running", [])],
                "lost": [(run.name, run.ending(), str(run.run.result_file)) for run in lost[:MOST]],
                "unlisted": max(0, len(lost) - MOST),
                "damaged": progress.damage(runs)[:MOST],
            }

    def _judge(self, manifest: Manifest, key: Any) -> bool:
        """Compute curves and verdicts if files have changed, unless that was a moment ago; whether they are current."""
        started = time.monotonic()
        if key == self.key or started < self.due:
            return bool(key == self.key)
        try:
            with refusing(study_folder(self.results, manifest.study)):
                study = load_study(self.results, manifest.study, manifest)
                case = case_of(study, self.results / "figures" / manifest.study)
                self.curves, self.judged = series(case, "missing") or {}, _judged(case)
        except Refused as error:
            self.judged = {"verdicts": [], "notes": [str(error)]}
        self.key, self.version = key, time.time_ns()
        self.due = time.monotonic() + REST * (time.monotonic() - started)
        return True


def _judged(case: Case) -> State:
    """The sentences of effects and claims, each with whether it is decided, and notes on them."""
    found, table = verdicts(case), evidence.headline(case.effects)
    if naming.no_evidence(case.study.manifest):  # such as tuning
        return {"verdicts": [], "notes": found.text}
    decided = [verdict in evidence.DECIDED for verdict in table["verdict"]]
    lines = [*zip(found.items, decided, strict=True), *((line, False) for line in claims(case).items)]
    return {"verdicts": lines, "notes": [*overall(case).text, *found.text]}


class Server(ThreadingHTTPServer):
    """Serves the page, its state and its curves to this machine alone.  Raises OSError if the port is in use."""

    daemon_threads = True

    def __init__(self, live: Live, port: int):
        super().__init__((HOST, port), Handler)
        self.places = threading.BoundedSemaphore(CLIENTS)
        self.hosts, page = [f"{name}:{self.server_port}" for name in (HOST, "localhost")], live.page()
        self.content = {"/": lambda: page, "/state.json": live.state, "/curves.json": lambda: live.curves}

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
    """Answers GET and HEAD of the server's own addresses."""

    server: Server
    timeout = 10  # seconds that a silent client may keep a thread

    def handle(self) -> None:
        """Answer one request; a client that has left is no error."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """Send what an address names.  A page elsewhere may have pointed another host's name here."""
        if self.headers.get("Host") not in self.server.hosts or self.path not in self.server.content:
            self.send_error(404 if self.headers.get("Host") in self.server.hosts else 403)
            return
        found = self.server.content[self.path]()
        kind, text = ("text/html", found) if isinstance(found, str) else ("application/json", json.dumps(found))
        content = text.encode()
        self.send_response(200)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content)), **HEADERS}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content if self.command == "GET" else b"")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Print no line for each request."""
