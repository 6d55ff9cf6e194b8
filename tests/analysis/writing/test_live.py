"""`ablate watch`: what its page says of a study on disk, to whom, and that it changes nothing there."""

import hashlib
import html
import http.client
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, resize
from crashing_norm import wait_for
from fake_studies import edit_json, edit_manifest, fabricate

from ablate.runs.files import write_json
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.manifest import study_folder
from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.cli.watch import main
from analysis.writing import live
from analysis.writing.live import Live, Server
from analysis.writing.sections import sentences

EVIL = "<script>window.taken = true</script><img src=x onerror='window.taken=true'>"
STATES = {("rms", 0): "diverged", ("rms", 1): "failed", ("rms", 2): "running", ("ln", 3): "missing"}


@pytest.fixture
def results(tmp_path) -> Path:
    """Runs in every state; one has failed with a message that is a script."""
    status = lambda levels, seed: STATES.get((levels["norm"], seed), "done")  # noqa: E731
    fabricate(tmp_path, {"norm": ["ln", "rms"]}, range(6), status=status)
    [failed] = tmp_path.glob("runs/rms-*/s1-*/result.json")
    edit_json(failed, lambda result: result["error"].update(message=f"{EVIL}\x1b[31m"))
    [training] = tmp_path.glob("runs/rms-*/s2-*")
    lease = {"host": "node7.cluster", "pid": 123, "device": "cuda:1", "started": "2025-01-01"}
    write_json(training / "lease.json", lease)
    return tmp_path


Ask = Callable[..., tuple[int, Any, dict[str, str]]]


@pytest.fixture
def server(results) -> Iterator[Server]:
    """A server of the study."""
    with Server(Live(results, "fabricated"), 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def ask(server) -> Ask:
    """Asks the server below its token; its answer's status, content, JSON parsed, and headers."""

    def asked(name: str, path: str = server.path, method: str = "GET") -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request(method, path + name)
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = text and "json" in answer.headers["Content-Type"]
        return answer.status, json.loads(text) if is_json else text, dict(answer.headers)

    return asked


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    """Everything in a folder: when it was changed, and the content of files."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = path.stat().st_mtime_ns, hashlib.sha256(content).hexdigest()
    return found


def test_the_state_is_what_is_on_disk_and_nothing_is_written(results, ask):
    before = fingerprint(results)
    _, state, _ = ask("state.json")
    _, curves, _ = ask("curves.json")
    status, page, headers = ask("")
    assert fingerprint(results) == before, "neither a look, nor any file"
    assert (status, state["title"], state["over"]) == (200, "10/12 · norm · ablate watch", False)
    assert "12 runs: 8 done, 1 diverged, 1 failed, 1 running, 1 queued, about " in state["first"]
    for text in ("rms s2", "400/800", "node7:123 cuda:1"):
        assert f">{text}</td>" in state["first"]
    assert "rms s1: failed: RuntimeError" in state["rest"] and "rms s0: diverged at step 400" in state["rest"]
    assert "Provisional" in state["rest"]
    study = load_study(results, "fabricated")
    (sentence,) = sentences(case_of(study, results / "figures" / "fabricated"))
    assert html.escape(sentence, quote=False).replace("'", "&#39;") in state["rest"]
    assert EVIL not in state["rest"] and html.escape(EVIL).replace("&#x27;", "&#39;") in state["rest"]
    assert "fabricated" in page and "connect-src &#39;self&#39;" in page
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    thin = [line for line in curves["data"] if line["mode"] == "lines+markers"]
    assert len(thin) == 2, "a diverged run, and one in training: part of no mean"


def test_only_who_knows_the_token_gets_an_answer_and_only_of_the_page(server, ask):
    for path in ("/", "/x/", f"{server.path[:-2]}/", server.path.upper()):
        for name in ("", "state.json", "curves.json"):
            assert ask(name, path)[0] == 404, path
    for name in ("../state.json", "studies/fabricated/manifest.json", "%2e%2e/etc/passwd", "state.json?x", "x"):
        status, text, _ = ask(name)
        assert status == 404 and "runs" not in text, name
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask("state.json", method=method)[0] == 501
    assert len(server.path) > 20 and server.path in server.address


def status(ask: Ask) -> int:
    """The status of an answer; 0 if the connection was closed before it was read."""
    try:
        return ask("")[0]
    except ConnectionError:
        return 0


def test_too_many_clients_at_a_time_are_turned_away_and_the_next_is_answered(server, ask):
    silent = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(live.CLIENTS)]
    wait_for(lambda: status(ask) == 503)
    for client in silent:
        client.close()
    wait_for(lambda: status(ask) == 200)


def test_tables_are_computed_again_when_files_change_and_not_before(results, ask, monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(live, "load_study", lambda *given: read.append(given[1]) or load_study(*given))
    monkeypatch.setattr(live, "REST", 0)
    versions = [ask("state.json")[1]["version"] for _ in range(3)]
    assert len(read) == 1 and len({*versions}) == 1
    [running] = load_study(results, "fabricated").runs.query("seed == 2 and norm == 'rms'")["path"]
    run = Run(results, running)
    writer = MetricsWriter(run, os.path.getsize(run.metrics_file))
    writer.write({"step": 440, "tokens": 64 * 440, "seconds": 44.0, "val/loss": 2.5})
    writer.close()
    monkeypatch.setattr(live, "REST", 1e9)
    state = ask("state.json")[1]
    assert len(read) == 2 and state["version"] > versions[0]
    shutil.copy(next(results.rglob("s5-*/result.json")), Run(results, running).folder)
    later = ask("state.json")[1]
    assert len(read) == 2 and later["title"].startswith("11/12"), "counts at once, tables after a pause"
    shutil.rmtree(study_folder(results, "fabricated"))
    assert "The study cannot be read" in ask("state.json")[1]["first"]


@pytest.mark.parametrize("status", ["missing", "running"])
def test_a_study_of_which_nothing_has_ended_or_begun_has_a_page(tmp_path, status):
    found = Live(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}, status=lambda *_: status))
    assert found.state().title.startswith("0/6")
    assert (found.curves is None) == (status == "missing")


def test_progress_is_shown_beside_a_damaged_figures_yaml(tmp_path):
    fabricate(tmp_path, {"norm": ["ln", "rms"]})
    (tmp_path / "figures" / "fabricated").mkdir(parents=True)
    (tmp_path / "figures" / "fabricated" / "figures.yaml").write_text("colours: 7")
    state = Live(tmp_path, "fabricated").state()
    assert state.title.startswith("6/6")
    assert "figures.yaml" in state.rest


def test_a_round_of_tuning_has_no_verdicts(tmp_path):
    tuned = {"norm": ["ln", "rms"], "optim.lr": [1e-3, 3e-3]}
    fabricate(tmp_path, tuned, study="mine-tune", tunes="mine", components=["norm"])
    state = Live(tmp_path, "mine").state()
    assert "<li>" not in state.rest and "serves another one" in state.rest and not state.over
    assert "the study itself is planned when this has ended" in state.first


def test_a_study_that_is_over_says_so(tmp_path):
    found = Live(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    found.due = float("inf")
    assert not found.state().over, "the page goes on asking until verdicts are current"
    found.due = 0.0
    state = found.state()
    assert state.over and "Every run has ended; the report: ablate analyse fabricated" in state.first


def test_what_cannot_be_watched_is_a_line(results, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = {
            ("--port", port): f"--port {port} cannot be opened",
            ("--port", "70000"): "--port 70000 cannot be opened",
            ("fabricatd",): "did you mean fabricated?",
            ("--results-dir", str(results / "nothing")): "no results folder at",
        }
        for words, told in cases.items():
            assert main(["--results-dir", str(results), *words]) == 2
            err = capsys.readouterr().err
            assert err.count("\n") == 1
            assert told in err
    with pytest.raises(SystemExit):
        main(["--results-dir", str(results), "--json"])
    assert "ablate status --json" in capsys.readouterr().err


def test_ctrl_c_is_130(results, monkeypatch, capsys):
    monkeypatch.setattr(Server, "serve_forever", lambda self: signal.raise_signal(signal.SIGINT))
    assert main(["--results-dir", str(results), "--port", "0"]) == 130
    out, err = capsys.readouterr()
    assert out.startswith("fabricated: http://127.0.0.1:") and out.count("\n") == 1 and err == ""


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_follows_in_a_browser(results, server):
    edit_manifest(results, "fabricated", lambda manifest: manifest["cells"][1].update(label=f"rms {EVIL}"))
    with chromium() as browser:
        loopback = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        browser.execute_cdp_cmd("Network.emulateNetworkConditions", loopback)
        look = browser.execute_script
        for width in (1280, 390):
            resize(browser, width)
            browser.get(server.address)
            wait_for(lambda: look("return document.getElementById('curves-plot').dataset.ready") == "true")
            assert look("return document.documentElement.scrollWidth") == width
            assert "10/12" in look("return document.title") and not look("return window.taken")
            assert EVIL in look("return document.getElementById('rest').textContent"), "as text"
            look("window.mark = 1")
        running = next(results.rglob("rms*/s2-*"))
        shutil.copy(next(results.rglob("s5-*/result.json")), running)
        wait_for(lambda: "11/12" in look("return document.title"))
        assert look("return window.mark") == 1 and not browser.get_log("browser"), "without a reload"


def test_a_run_with_a_deep_configuration_ends_no_server(results, ask):
    for file in results.glob("runs/*/*/result.json"):
        (file.parent / "config.yaml").write_text("[" * 30_000)
    assert ask("state.json")[0] == 200
    assert ask("state.json")[0] == 200
