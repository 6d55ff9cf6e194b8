"""A server on this machine that answers what W&B's client and `wandb-workspaces` call, and keeps what it was sent."""

import base64
import contextlib
import gzip
import http.server
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]
ENTITY = "someone"
WHEN = "2025-01-01T00:00:00"


class Server:
    """What was sent: runs, saved views and reports by id, files by path.

    `refused` are the operations that the key may not do; with a `status` other than 200 nothing is answered.
    """

    def __init__(self, project: str):
        self.url = ""
        self.project = project
        self.status = 200
        self.runs: dict[str, Row] = {}
        self.views: dict[str, Row] = {}
        self.files: dict[str, bytes] = {}
        self.refused: set[str] = set()

    def answer(self, query: str, given: Row) -> Row:
        """The answer to an operation of GraphQL; an empty one to those that do not matter here."""
        operation = re.search(r"(?:query|mutation)\s+(\w+)", query)
        name = operation[1] if operation else ""
        if name in self.refused:
            return {"data": None, "errors": [{"message": "permission denied", "path": [name]}]}
        return {"data": getattr(self, f"_{name}", lambda given: {})(given)}

    def _viewer(self, given: Row) -> Row:
        return {"viewer": {"id": "u1", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}}

    _Viewer = _GetDefaultEntity = _viewer

    def _in_project(self, given: Row, **more: Any) -> Row | None:
        names = {given.get(name, self.project) for name in ("project", "projectName")}
        owner = {"name": self.project, "entity": {"id": "e1", "name": ENTITY}, "entityName": ENTITY}
        return {"id": "p1", "internalId": "7"} | owner | more if names == {self.project} else None

    def _ProjectInternalId(self, given: Row) -> Row:
        return {"project": self._in_project(given)}

    def _GetProjects(self, given: Row) -> Row:
        plain = {"createdAt": WHEN, "isBenchmark": False, "user": None}
        return {"models": _page([self._in_project({}, **plain)])}

    def _RunResumeStatus(self, given: Row) -> Row:
        run = self.runs.get(given["name"])
        more = {"logLineCount": 0, "eventsLineCount": 0, "historyTail": "[]", "eventsTail": "[]", "wandbConfig": "{}"}
        return {"model": self._in_project(given, bucket=self._bucket(run) | more if run else None)}

    def _UpsertBucket(self, given: Row) -> Row:
        known = [run for run in self.runs.values() if given.get("name") == run["name"] or given.get("id") == run["id"]]
        if known:
            [run] = known
        else:
            name = given["name"]
            run = {"id": f"storage-{name}", "name": name, "config": {}, "summary": {}, "state": "running"}
            self.runs[name] = run
        if given.get("config"):
            config = json.loads(given["config"])
            run["config"] |= {key: entry["value"] for key, entry in config.items() if key != "_wandb"}
        if given.get("summaryMetrics"):
            run["summary"] = json.loads(given["summaryMetrics"])
        run |= {key: given[key] for key in ("displayName", "groupName", "jobType", "tags") if given.get(key)}
        return {"upsertBucket": {"bucket": self._bucket(run), "inserted": not known}}

    def _bucket(self, run: Row) -> Row:
        config = json.dumps({key: {"value": value} for key, value in run["config"].items()})
        bucket: Row = dict.fromkeys(("sweepName", "description", "heartbeatAt", "commit", "notes", "historyKeys"))
        bucket |= {"createdAt": WHEN, "tags": [], "readOnly": False, "systemMetrics": "{}", "projectId": "7"}
        bucket |= {"user": {"name": ENTITY, "username": ENTITY}, "project": self._in_project({}), "jobType": None}
        bucket |= {"displayName": run["name"], "group": run.get("groupName")}
        bucket |= {key: value for key, value in run.items() if isinstance(value, str)}
        return bucket | {"summaryMetrics": json.dumps(run["summary"]), "config": config, "historyLineCount": 0}

    def _CreateRunFiles(self, given: Row) -> Row:
        files = [{"name": name, "uploadUrl": f"{self.url}/upload/{given['run']}/{name}"} for name in given["files"]]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def _upsertView(self, given: Row) -> Row:
        name = given.get("id") or base64.b64encode(b"View:v1:%04d" % len(self.views)).decode()
        known = name in self.views
        self.views[name] = given | {"id": name}
        return {"upsertView": {"view": self._shown(name), "inserted": not known}}

    _UpsertView2 = _upsertView

    def _shown(self, name: str) -> Row:
        keys = ("id", "name", "displayName", "description", "spec", "type")
        return {key: self.views[name][key] for key in keys} | {"updatedAt": WHEN, "project": self._in_project({})}

    def _View(self, given: Row) -> Row:
        views = [self._shown(view["id"]) for view in self.views.values() if view["name"] == given["viewName"]]
        return {"project": {"allViews": _page(views)}}

    def _SpecificReport(self, given: Row) -> Row:
        return {"view": self._shown(given["reportId"])}

    def stream(self, name: str, body: Row) -> Row:
        """Take the summary of a run."""
        summary = body.get("files", {}).get("wandb-summary.json")
        if summary:
            self.runs[name]["summary"] = json.loads(summary["content"][-1])
        if body.get("complete"):
            self.runs[name]["state"] = "failed" if body.get("exitcode") else "finished"
        return {}


def _page(nodes: list[Any]) -> Row:
    edges = [{"node": node, "cursor": ""} for node in nodes]
    return {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}


@contextlib.contextmanager
def serving(project: str = "trial") -> Iterator[Server]:
    """A server that answers until the end of the `with` block."""
    server_state = Server(project)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
            answer: Row = {}
            if self.path.endswith("/graphql"):
                query = json.loads(data)
                answer = server_state.answer(query["query"], query.get("variables") or {})
            elif self.path.endswith("/file_stream"):
                answer = server_state.stream(self.path.split("/")[-2], json.loads(data))
            elif self.path.startswith("/upload/"):
                server_state.files[self.path.removeprefix("/upload/")] = data
            content = json.dumps(answer).encode()
            self.send_response(server_state.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Say nothing of connections that the client has reset."""

    with Quiet(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server_state.url = f"http://127.0.0.1:{server.server_port}"
        yield server_state
        server.shutdown()
