"""The site that `make docs` builds: README.md, docs/, the findings, and API pages from docstrings."""

import inspect
import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
# Links to files that are no pages lead there: to the repository, else to this checkout.
SOURCE = os.environ.get("DOCS_SOURCE", ROOT.as_uri())

project = "ablate"
copyright = "the ablate authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = ["README.md", "docs/**.md", "experiments/*.md", "experiments/findings/*.md"]
exclude_patterns = ["docs/site/navigation.md"]

myst_heading_anchors = 4
highlight_language = "none"
default_role = "code"  # `x` in a docstring
smartquotes = False
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False

html_theme = "furo"
html_title = "ablate"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_extra_path = ["index.html"]
html_copy_source = False


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the tables of contents to the front page, where Sphinx wants them."""
    if name == root_doc:
        source[0] += "\n" + (ROOT / "docs/site/navigation.md").read_text(encoding="utf-8")


def link_to_source(app: Sphinx, page: nodes.document) -> None:
    """Turn links to files and folders that are no pages into links to the repository."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    links = [*page.findall(addnodes.download_reference), *page.findall(addnodes.pending_xref)]
    for link in links:
        if link["reftype"] != "myst" or link["reftarget"] in app.env.found_docs:
            continue
        target = folder / link["reftarget"]
        if link["refdomain"] == "doc":
            target = ROOT / f"{link['reftarget']}.md"
        if target.exists():
            address = f"{SOURCE}/{target.resolve().relative_to(ROOT)}"
            link.replace_self(nodes.reference("", "", *link.children, refuri=address))


def skip_helpers(app: Sphinx, kind: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Of the components' modules, document the classes alone."""
    return True if app.env.docname == "docs/site/components" and not inspect.isclass(member) else None


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("autodoc-skip-member", skip_helpers)
    app.connect("doctree-read", link_to_source, priority=1)  # before the files are copied as downloads
