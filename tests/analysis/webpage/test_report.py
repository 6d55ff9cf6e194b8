"""report.html: what it says, that nothing in it is markup but ours, that it needs nothing else."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from analysed_studies import analysed
from fake_studies import TASK, fabricate
from shown_studies import TWO, claim

from ablate.runs.study import load_study
from analysis import webpage
from analysis.case import Case, case_of
from analysis.cli.main import main
from analysis.webpage import policy as policy_of
from analysis.webpage.curve_data import POINTS, series

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


class Parsed(HTMLParser):
    """The tags of a page with their attributes, the text of elements by tag, and what scripts of data hold."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "input", "br"):
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} ends where another element is open"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def case(results: Path, study: str) -> Case:
    return case_of(load_study(results, study), results / "figures" / study)


def written(results: Path, study: str) -> str:
    """The report of a study without its figures."""
    folder = results / "figures" / study
    folder.mkdir(parents=True, exist_ok=True)
    (file,) = webpage.write(case(results, study), folder)
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module", name="analysed")
def analysed_folder() -> Path:
    return analysed()


def test_the_report_answers_what_a_reader_asks_and_says_nothing_twice(analysed: Path) -> None:
    found = Parsed((analysed / "report.html").read_text(encoding="utf-8"))
    assert found.open == []
    asked = ["Does it help?", "What was compared?", "How did training go?", "Can I trust it?"]
    asked += ["What went wrong, and what was left out?", "Every run", "How was this made?"]
    assert found.texts["h2"] == asked
    said = "\n".join(text for texts in found.texts.values() for text in texts)
    assert "Do gates help a narrow model?" in said
    assert re.search(r"SwiGLU in place of ReLU MLP lowers the test loss by 0\.0\d+ \[[0-9., ]+\] nats per byte", said)
    assert "unadjusted: intervals do not allow for interim analyses at 2 seeds" in said
    assert "ablate -m norm=ln,rms ffn=mlp,swiglu" in said and "2025-01-02T03:04:05+00:00: 2 seeds" in said
    assert "shapes do not fit" in said and "2 of 16" not in said
    assert re.search(r"^3 effects: 1 better, \d undecided", said, re.MULTILINE), "the verdicts are counted"
    rows = [attributes for attributes in found.all("tr") if "data-status" in attributes]
    assert [row["data-status"] for row in rows].count("failed") == 2 and len(rows) == 16
    said = [text.strip() for text in found.texts["p"] if text.strip()]
    assert len(said) == len(set(said))


def test_a_report_is_small_does_not_say_where_it_was_written_and_is_equal_for_equal_studies(analysed: Path) -> None:
    results = analysed.parents[1]
    for file in analysed.iterdir():
        assert str(results).encode() not in file.read_bytes(), file.name
    assert (analysed / "report.html").stat().st_size < 6_500_000
    first, again = (webpage.html(case(analysed.parents[1], "fabricated"), analysed) for _ in range(2))
    assert first == again


def test_every_effect_claim_and_cell_leads_to_its_runs(tmp_path: Path) -> None:
    sides = [{"ffn": "swiglu", "norm": "rms"}, {"ffn": "mlp", "norm": "ln"}]
    text = written(tmp_path, fabricate(tmp_path, GRID, claims={"rms": claim(less=sides)}))
    leads = re.findall(r'<a href="#runs" data-cells="([\d ]+)">([^<]+)</a>', text)
    cells = {name: set(places.split()) for places, name in leads if name != "runs"}
    every = {"0", "1", "2", "3"}  # ln + mlp, ln + swiglu, rms + mlp, rms + swiglu
    assert cells["FFN: SwiGLU − ReLU MLP"] == cells["RMSNorm × SwiGLU"] == every and cells["rms"] == {"0", "3"}
    names = ["LayerNorm + ReLU MLP", "LayerNorm + SwiGLU", "RMSNorm + ReLU MLP", "RMSNorm + SwiGLU"]
    assert cells[names[2]] == {"2"} and cells[f"{names[2]} against {names[0]}"] == {"0", "2"}
    sentences = [set(places.split()) for places, name in leads if name == "runs"]
    assert sentences == [every, every, every, {"0", "3"}], "three effects and a claim"
    rows = re.findall(r'<tr data-status="done" data-cell="(\d)"><th scope="row">([^<]+)</th>', text)
    assert set(rows) == {*zip("0123", names, strict=True)}
    factors = {"norm": ["ln", "rms"], "data": [*TWO]}
    text = written(tmp_path, fabricate(tmp_path, factors, study="two", tasks=TWO, task=lambda levels: levels["data"]))
    assert '<a href="#runs" data-cells="2 3">RMSNorm</a>' in text, "a variant on all tasks"


def test_nothing_is_fetched_and_only_these_scripts_run(analysed: Path) -> None:
    text = (analysed / "report.html").read_text(encoding="utf-8")
    found = Parsed(text)
    for tag, attributes in found.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], "an inline handler"
    assert not found.all("link") and not found.all("iframe")
    assert "@import" not in found.texts["style"][0] and "url(" not in found.texts["style"][0]
    (policy,) = [meta["content"] for meta in found.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    scripts = [text for text, tag in zip(found.texts["script"], found.all("script"), strict=True) if "type" not in tag]
    assert policy == policy_of(scripts)
    assert policy and "default-src 'none'" in policy and "script-src 'sha256-" in policy and "http" not in policy


def test_no_text_of_a_study_becomes_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    quoted = "\"' onmouseover='alert(2)'><img src=x onerror=alert(3)>"
    tasks = {"f0": TASK | {"title": "{{7*7}}", "metrics": {"<b>loss": "min"}}}
    status = lambda levels, seed: "failed" if seed == 2 else "done"  # noqa: E731
    told = {"question": evil, "command": quoted, "remarks": [evil + quoted], "versions": {"<u>": evil}}
    factors = {"ffn": ["mlp", evil], "javascript:alert(4)": ["a", quoted]}
    named = {"study": "<i>xxxxxxxxx", "created": quoted}
    text = written(tmp_path, fabricate(tmp_path, factors, status=status, tasks=tasks, **told, **named))
    found, plain = Parsed(text), Parsed(written(tmp_path, fabricate(tmp_path, GRID, study="plain")))
    assert found.open == []
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags} | {"br"}
    assert len(found.all("script")) == len(plain.all("script")) and not found.all("img")
    allowed = {name for _, attributes in plain.tags for name in attributes}
    assert {name for _, attributes in found.tags for name in attributes} <= allowed
    assert evil in found.texts["p"] and quoted in found.texts["dd"] and "{{7*7}}" in found.texts["dd"]
    data = json.loads(found.texts["script"][0])
    assert any(evil in cell["name"] for cell in data["cells"]) and data["metric"] == "val/<b>loss"


@pytest.mark.parametrize("status", ["failed", "diverged", "running"])
def test_a_study_without_a_number_has_its_report(tmp_path: Path, status: str) -> None:
    found = Parsed(written(tmp_path, fabricate(tmp_path, GRID, status=lambda levels, seed: status)))
    assert "No run ended with a result: there is nothing to compare." in found.texts["p"]
    named = {"running": "missing"}.get(status, status)
    assert [row["data-status"] for row in found.all("tr") if "data-status" in row] == [named] * 12
    assert ("No learning curves" in "".join(found.texts["p"])) == (status != "diverged")


def test_curves_are_means_over_the_seeds_that_ended(tmp_path: Path) -> None:
    status = lambda levels, seed: "diverged" if (levels["ffn"], seed) == ("swiglu", 2) else "done"  # noqa: E731
    made = case(tmp_path, fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, status=status, timing="isolated"))
    found = series(made)
    assert found and list(found["axes"]) == ["step", "tokens", "seconds"] and not found["thinned"]
    curves = made.study.curves
    for cell, seeds in zip(found["cells"], ([0, 1, 2], [0, 1]), strict=True):
        logged = curves[(curves["label"] == cell["name"].split(" (")[0]) & curves["seed"].isin(seeds)]
        values = logged.pivot(index="step", columns="seed", values="val/loss")
        shown = {name: found["columns"][place] for name, place in cell["mean"].items()}
        assert cell["n"] == len(seeds)
        np.testing.assert_allclose(shown["value"], values.mean(axis=1), rtol=1e-5)
        np.testing.assert_allclose(shown["sd"], values.std(axis=1, ddof=1), rtol=1e-4)
        np.testing.assert_allclose(shown["high"], values.mean(axis=1) + values.std(axis=1, ddof=1), rtol=1e-4)
        assert shown["step"] == list(range(0, 801, 40)) and shown["tokens"][-1] == 800 * 1024
    lost, columns = found["cells"][1]["runs"][2], found["columns"]
    assert lost["status"] == "diverged" and columns[lost["step"]][-1] == 400 and columns[lost["value"]][-1] is None
    assert "1 of 3 diverged" in found["cells"][1]["name"]


def test_long_curves_keep_their_ends_and_extremes(tmp_path: Path) -> None:
    made = case(tmp_path, fabricate(tmp_path, {"ffn": ["mlp"]}, seeds=[0], every=1))
    found = series(made)
    assert found and found["thinned"]
    run = found["cells"][0]["runs"][0]
    steps, values = (found["columns"][run[name]] for name in ("step", "value"))
    logged = made.study.curves["val/loss"]
    assert len(steps) <= POINTS + 2 < len(logged) and (steps[0], steps[-1]) == (0, 800)
    assert steps == sorted(set(steps))
    np.testing.assert_allclose([min(values), max(values)], [logged.min(), logged.max()], rtol=1e-5)


def test_the_overall_verdict_and_effects_come_first_and_what_claims_say_is_no_column(tmp_path: Path) -> None:
    sides = [{"ffn": "swiglu"}, {"ffn": "mlp"}]
    claims = {"gated": claim(less=sides), "same": claim(equivalent=sides, margin=1e-9)}
    criterion = {"value": {"of": ["gated", "same"]}, "registered": True}
    fabricate(tmp_path, GRID, claims=claims, replicated=criterion)
    folder = tmp_path / "figures" / "fabricated"
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text("subset: {figures: [claims]}")
    assert main(["--results-dir", str(tmp_path)]) == 0
    text = (folder / "report.html").read_text(encoding="utf-8")
    help, others = text.split('<section id="help"')[1].split("</section>", 1)
    assert re.findall(r"<h3>(.*)</h3>", help) == ["Claims"]
    order = ["replicated (registered): refuted", "SwiGLU in place of ReLU MLP", ">Claims<", "gated (registered)"]
    assert sorted(order, key=help.index) == order and text.count(order[0]) == 1
    assert '<li class="decided">gated (registered): supported.' in help
    assert '<li class="decided">same (registered): contradicted.' in help
    assert "Every claim of the study file" in help and "Every claim of the study file" not in others
    assert '<th scope="col">claim</th>' in help and '<th scope="col">found</th>' not in help
