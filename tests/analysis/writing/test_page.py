"""report.html: what it says, that nothing in it is markup but ours, that it needs nothing else."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from analysed_studies import analysed
from fake_studies import TASK, fabricate
from shown_studies import claim

from ablate.runs.study import load_study
from analysis.case import Case, case_of
from analysis.writing import page
from analysis.writing.chart import chart

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
    page.write(case(results, study), folder)
    return (folder / page.NAME).read_text(encoding="utf-8")


@pytest.fixture(scope="module", name="analysed")
def analysed_folder() -> Path:
    return analysed()


def test_the_report_has_results_first_and_says_nothing_twice(analysed):
    found = Parsed((analysed / "report.html").read_text(encoding="utf-8"))
    assert found.open == []
    titles = ["Results", "Learning curves", "In words", "Figures", "What was compared", "Every configuration"]
    assert found.texts["h2"][: len(titles)] == titles
    text = "\n".join(text for texts in found.texts.values() for text in texts)
    assert "Do gates help a narrow model?" in text
    assert re.search(r"SwiGLU lowers test loss by 0\.0\d+ \[[0-9., ]+\] nats per byte", text)
    assert "unadjusted: intervals do not allow for interim analyses at 2 seeds" in text
    assert "ablate -m norm=ln,rms ffn=mlp,swiglu" in text
    assert "shapes do not fit" in text
    assert re.search(r"^3 effects: 1 better, \d undecided", text, re.MULTILINE), "the verdicts are counted"


def test_a_report_is_small_and_does_not_say_where_it_was_written(analysed):
    for file in analysed.iterdir():
        assert str(analysed.parents[1]).encode() not in file.read_bytes(), file.name
    assert (analysed / "report.html").stat().st_size < 6_500_000


def test_a_confound_stands_in_the_table_of_results(tmp_path):
    made = case(tmp_path, fabricate(tmp_path, GRID))
    made = made._replace(effects=made.effects.assign(also="bias true → false"))
    folder = tmp_path / "figures"
    folder.mkdir()
    results = page.html(made, folder).split('id="results"')[1].split("<details>")[0]
    assert "also differs in" in results and "bias true → false" in results


def test_nothing_is_fetched_and_only_these_scripts_run(analysed):
    found = Parsed((analysed / "report.html").read_text(encoding="utf-8"))
    for tag, attributes in found.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], "an inline handler"
    assert not found.all("link")
    assert not found.all("iframe")
    [style] = found.texts["style"]
    assert not re.search(r"@import|url\(", style)
    policy = next(str(meta["content"]) for meta in found.all("meta") if "http-equiv" in meta)
    tags = found.all("script")
    scripts = [text for text, tag in zip(found.texts["script"], tags, strict=True) if "type" not in tag]
    assert len(scripts) == 2
    for text in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search("http|unsafe-eval", policy)


def test_no_text_of_a_study_becomes_markup(tmp_path):
    evil = "</script><script>alert(1)</script>"
    quoted = "\"' onmouseover='alert(2)'><img src=x onerror=alert(3)>"
    texts = {"question": evil, "command": quoted, "remarks": [evil + quoted], "versions": {"<u>": evil}}
    texts |= {"tasks": {"f0": TASK | {"title": "{{7*7}}", "metrics": {"<b>loss": "min"}}}}
    found = Parsed(written(tmp_path, fabricate(tmp_path, {"ffn": ["mlp", evil]}, study="<i>xxxxxxxxx", **texts)))
    plain = Parsed(written(tmp_path, fabricate(tmp_path, GRID, study="plain")))
    assert found.open == []
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags} | {"br"}
    assert len(found.all("script")) == len(plain.all("script"))
    allowed = {name for _, attributes in plain.tags for name in attributes}
    assert {name for _, attributes in found.tags for name in attributes} <= allowed
    assert evil in found.texts["p"] and quoted in found.texts["dd"]
    assert any("{{7*7}}" in text for text in found.texts["p"])
    curves = json.loads(found.texts["script"][0])
    assert any("&lt;script&gt;" in line["name"] for line in curves["data"])
    assert "<b>" not in curves["layout"]["yaxis"]["title"]["text"]


@pytest.mark.parametrize("status", ["failed", "diverged", "running"])
def test_a_study_without_a_number_has_its_report(tmp_path, status):
    found = Parsed(written(tmp_path, fabricate(tmp_path, GRID, status=lambda levels, seed: status)))
    assert "No run ended with a result: there is nothing to compare." in found.texts["p"]
    assert json.loads(found.texts["script"][0]) is None or status == "diverged"


def test_curves_are_means_over_the_seeds_that_ended(tmp_path):
    status = lambda levels, seed: "diverged" if (levels["ffn"], seed) == ("swiglu", 2) else "done"  # noqa: E731
    shown = case(tmp_path, fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, status=status))
    drawn = chart(shown)
    assert drawn
    curves = shown.study.curves
    ended = curves[(curves["label"] == "ReLU MLP") | (curves["seed"] < 2)]
    expected = ended.groupby(["label", "step"])["val/loss"].mean()
    means = [line for line in drawn["data"] if line.get("showlegend", True)]
    assert [line["name"] for line in means] == ["ReLU MLP (reference)", "SwiGLU (1 of 3 diverged)"]
    for line, label in zip(means, ("ReLU MLP", "SwiGLU"), strict=True):
        np.testing.assert_allclose(line["y"], expected[label], rtol=1e-5)
        assert line["x"] == expected[label].index.tolist()
    low, high = drawn["layout"]["yaxis"]["range"]
    late = expected[expected.index.get_level_values("step") >= 80]
    assert low < late.min() < late.max() < high < expected.max()
    (lost,) = [line for line in drawn["data"] if line["mode"] == "lines+markers"]
    assert lost["x"][-1] == 400 and lost["marker"]["size"][-1] > 0


def test_the_overall_verdict_comes_first_and_claims_are_in_the_results(tmp_path):
    sides = [{"ffn": "swiglu"}, {"ffn": "mlp"}]
    claims = {"gated": claim(less=sides), "same": claim(equivalent=sides, margin=1e-9)}
    criterion = {"value": {"of": ["gated", "same"]}, "registered": True}
    text = written(tmp_path, fabricate(tmp_path, GRID, claims=claims, replicated=criterion))
    results = text.split('id="results"')[1].split("</section>")[0]
    order = ["replicated (registered): refuted", "Effects on test loss", ">gated<", ">supported", ">contradicted"]
    assert sorted(order, key=results.index) == order and text.count(order[0]) == 1
