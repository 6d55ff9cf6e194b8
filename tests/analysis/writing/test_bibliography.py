"""references.bib: every paper that a study's variants cite, once, by its key, and nothing that TeX would run."""

from typing import Any

import pytest
from fake_studies import a_manifest
from pybtex.database import parse_string

from ablate.config.citations import entries, papers, short
from ablate.config.errors import PlanError
from ablate.config.groups import CONF, comment_words, groups, read_groups
from analysis.writing.bibliography import bibliography

VARIANTS = [
    (group, name) for group, found in groups().items() for name, file in found.items() if comment_words(file, "cite")
]
ROOT_NORM = papers([{"norm": "rms"}], read_groups())


def read(text: str) -> dict[str, dict[str, str]]:
    """The fields of the entries of a .bib file by key."""
    found = parse_string(text, "bibtex").entries
    return {
        key: dict(entry.fields) | {"author": " and ".join(map(str, entry.persons["author"]))}
        for key, entry in found.items()
    }


def test_every_entry_has_author_title_and_year_and_is_cited():
    known = entries(CONF)
    assert all({"author", "title", "year"} <= entry.keys() for entry in known.values())
    used = {key for group, name in VARIANTS for key in comment_words(groups()[group][name], "cite")}
    assert not (idle := known.keys() - used), f"no variant cites {sorted(idle)}: delete them from papers.bib"
    assert not (lost := used - known.keys()), f"write the entries {sorted(lost)} in ablate/conf/papers.bib"


def test_all_variants_together_are_one_valid_file():
    every: dict[str, Any] = {}
    for group, name in VARIANTS:
        every |= papers([{group: name}], read_groups())
    found = read(bibliography(a_manifest(papers=every)))
    assert found.keys() == entries(CONF).keys()
    for key, entry in entries(CONF).items():
        assert {name: found[key][name] for name in entry if name != "ENTRYTYPE"}.items() <= entry.items()


def test_a_paper_is_named_by_surnames_and_year():
    named = {"Zhang, Biao and Sennrich, Rico": "Zhang & Sennrich", "Vaswani, Ashish and others": "Vaswani et al."}
    named |= {"Biao Zhang": "Zhang", "{OLMo Team}": "OLMo Team", r"Del\'{e}tang, G.": "Delétang"}
    named |= {"A, B and C, D and E, F": "A et al.", "{This Lab and That}": "This Lab and That"}
    for author, expected in named.items():
        assert short({"author": author, "year": "2019"}) == f"{expected} 2019"


def test_what_tex_would_run_is_escaped_and_what_it_only_sets_stays_as_it_is():
    def titled(text: str) -> str:
        fields = {"title": text, "author": "Doe", "ENTRYTYPE": "misc"}
        return bibliography(a_manifest(papers={"norm=own": {"doe2024": fields}}))

    for text in (r"\input{/etc/passwd}", "50 % off", "$x$", r"\write18{x}", "a_b & c"):
        assert text not in titled(text)
        assert read(titled(text))["doe2024"]["author"] == "Doe"
    for text in (r"{LayerNorm} in Z\'urich", r"A \& B", "Grégoire"):
        assert f"title = {{{text}}}" in titled(text)


def test_the_manifest_has_the_entries_of_all_parts(plan):
    cited = plan("norm=ln,rms").manifest.papers
    assert list(cited["norm=ln"]) == ["ba2016layer"]
    assert cited["norm=rms"]["zhang2019root"]["year"] == "2019"
    assert "optim=adamw" in cited
    assert not {"norm=bn", "data=text"} & cited.keys()


def test_variants_of_the_users_cite_their_own_papers_bib(tmp_path):
    (tmp_path / "norm").mkdir()
    file = tmp_path / "norm" / "own.yaml"
    file.write_text("# Own norm.\n# cite: doe2024norm, ba2016layer\n_target_: mine.Norm\n")
    own = [{"norm": "own", "ffn": "nowhere"}]
    with pytest.raises(PlanError, match=r"norm=own: cites doe2024norm, which .*papers.bib lacks"):
        papers(own, read_groups(str(tmp_path)))
    (tmp_path / "papers.bib").write_text("@misc{doe2024norm,\n  author = {Doe, Jane},\n  year = {2024}\n}\n")
    entries.cache_clear()
    assert list(papers(own, read_groups(str(tmp_path)))["norm=own"]) == ["doe2024norm", "ba2016layer"]
