"""references.bib: every paper that a variant names, once, under a key that is the same in every study."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate.config.groups import groups, papers, source
from analysis.writing import bibliography
from analysis.writing.bibliography import Paper, cite, known, mention

SOURCES = {f"{group}={name}": source(file) for group, found in groups().items() for name, file in found.items()}
NAMED = {name: text for name, text in SOURCES.items() if text}


def entries(text: str) -> dict[str, dict[str, str]]:
    """The entries of a .bib file by key; fails on unbalanced braces and on anything between entries but comments."""
    found = {}
    for block in filter(None, (part.strip() for part in re.split(r"(?m)^(?=% )", text))):
        match = re.fullmatch(r"% [^\n]*\n@misc\{([a-z0-9.-]+),\n((?:  \w+ = \{.*\},\n)+)\}", block)
        assert match, block
        fields = dict(re.findall(r"  (\w+) = \{(.*)\},\n", match[2]))
        for value in fields.values():
            depth = 0
            for brace in re.findall(r"(?<!\\)[{}]", value):
                depth += 1 if brace == "{" else -1
                assert depth >= 0
            assert depth == 0
        assert match[1] not in found
        found[match[1]] = fields
    return found


@pytest.mark.parametrize("variant", NAMED)
def test_every_variant_of_ours_that_names_a_paper_has_it_with_author_title_and_year(variant: str) -> None:
    found = entries(bibliography.bibliography({"papers": {variant: NAMED[variant]}}))
    ids = re.findall(r"\d{4}\.\d{4,5}", NAMED[variant])
    assert found and {entry.get("eprint") for entry in found.values()} - {None} == set(ids)
    for entry in found.values():
        assert {"author", "title", "year"} <= entry.keys()
        assert entry["year"] in NAMED[variant] or entry["year"][2:] == entry["eprint"][:2]


def test_titles_are_of_papers_that_are_named_and_agree_with_their_first_author() -> None:
    named = {paper for text in NAMED.values() for paper in bibliography.papers(text)}
    ids = {paper.arxiv for paper in named} | {f"{paper.who} {paper.year}" for paper in named}
    assert set(known()) <= ids
    for paper in named:
        about = known().get(paper.arxiv) or known()[f"{paper.who} {paper.year}"]
        first = paper.who.split(" & ")[0].removesuffix(" 2 team").lower()  # "OLMo 2 team" is {Team OLMo}
        assert about["author"].strip("{").lower().removeprefix("team ").startswith(first)
        assert " & " not in paper.who or (about["author"].count(" and ") == 1 and "others" not in about["author"])


def test_keys_name_author_year_and_paper() -> None:
    assert Paper("Zhang & Sennrich", "2019", "1910.07467").key == "zhang2019-1910.07467"
    assert Paper("Delétang", "2022", "2207.02098").key == "deletang2022-2207.02098"
    assert Paper("Glorot & Bengio", "2010", "").key == "glorot-bengio2010"
    keys = [paper.key for paper in {paper for text in NAMED.values() for paper in bibliography.papers(text)}]
    assert len(set(keys)) == len(keys)


def test_all_variants_together_are_one_valid_file() -> None:
    found = entries(bibliography.bibliography({"papers": NAMED}))
    assert len(found) == len({paper for text in NAMED.values() for paper in bibliography.papers(text)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Foo 2024, arXiv 2401.00001", [Paper("Foo", "2024", "2401.00001")]),
        ("Foo & Bar 2024 (Baz), arXiv 2401.00001; GPT-2", [Paper("Foo & Bar", "2024", "2401.00001")]),
        ("Patches as in Foo 2020; lengths of Bar 2021", [Paper("Foo", "2020", ""), Paper("Bar", "2021", "")]),
        ("Radford 2018; arXiv 1706.03762 without its encoder",
         [Paper("Radford", "2018", ""), Paper("Vaswani", "2017", "1706.03762")]),
        ("in 2021 nobody", []),
        ("", []),
    ],
)  # fmt: skip
def test_papers_in_a_comment(text: str, expected: list[Paper]) -> None:
    assert bibliography.papers(text) == expected


def test_a_paper_that_is_not_known_keeps_what_its_yaml_says_and_no_more() -> None:
    (entry,) = entries(
        bibliography.bibliography({"papers": {"norm=mine": "Doe_X & Roe 2024, arXiv 2401.99999"}})
    ).values()
    assert entry["author"] == r"Doe\_X and Roe" and entry["eprint"] == "2401.99999" and "title" not in entry


def test_a_study_without_papers_has_no_references() -> None:
    assert bibliography.bibliography({}) == "" and bibliography.bibliography({"papers": {"data=dates": ""}}) == ""
    assert mention({}, "norm=rms") == ""


def test_marks_become_citations_and_foreign_marks_stay_text() -> None:
    manifest = {"papers": {"norm=rms": "Zhang & Sennrich 2019, arXiv 1910.07467"}}
    text = f"rms{mention(manifest, 'norm=rms')} and x [@other2020] and ffn{mention(manifest, 'ffn')}"
    assert (
        cite(manifest, text, lambda found: f" ({found[0].who})") == "rms (Zhang & Sennrich) and x [@other2020] and ffn"
    )


def test_the_manifest_names_the_papers_of_all_parts_and_of_variants_of_the_users(
    plan: Callable[..., Any], tmp_path: Path
) -> None:
    manifest = plan("norm=ln,rms").manifest
    assert manifest["papers"]["norm=ln"] == "Ba 2016, arXiv 1607.06450"
    assert manifest["papers"]["norm=rms"] == "Zhang & Sennrich 2019, arXiv 1910.07467"
    assert manifest["papers"]["optim=adamw"].startswith("Loshchilov & Hutter 2017")
    assert "norm=bn" not in manifest["papers"] and "data=text" not in manifest["papers"]
    folder = tmp_path / "mine" / "norm"
    folder.mkdir(parents=True)
    (folder / "own.yaml").write_text("# Own norm by Doe 2024, arXiv 2401.99999\n_target_: mine.Norm\n")
    assert papers([{"norm": "own", "ffn": "nowhere"}], groups(str(tmp_path / "mine"))) == {
        "norm=own": "Own norm by Doe 2024, arXiv 2401.99999"
    }
    assert yaml.safe_load((folder / "own.yaml").read_text())["_target_"] == "mine.Norm"
