"""How Sphinx makes the documentation's site of the pages as they lie in the repository: `make docs`.

The repository is the source folder, so that a link means the same on the site as among the files. The README is the
start page, and NAVIGATION lists all others: a page that it lacks is a warning, and a warning is an error.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[1]
START = "README"
NAVIGATION = {
    "Use it": [
        "docs/server", "docs/api", "docs/flags", "docs/models", "docs/metrics", "docs/security", "deploy/README",
        "docs/troubleshooting",
    ],
    "The prefix cache": [
        "docs/radix-attention", "docs/cache", "docs/eviction", "docs/scheduling", "docs/memory", "docs/simulate",
    ],
    "Change it": [
        "docs/architecture", "docs/add-a-model", "docs/add-a-backend", "CONTRIBUTING", "docs/decisions",
    ],
    "Measured": ["docs/benchmarks", "docs/benchmarks-gpu", "docs/benchmarks-radix", "docs/lab-notes", "CHANGELOG"],
}  # fmt: skip

project = "minisgl"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = START
include_patterns = ["*.md", "docs/*.md", "deploy/*.md"]
exclude_patterns = [".*", "build", "dist", "tests", "ui"]  # folders that are not even looked into
myst_heading_anchors = 4
smartquotes = False  # of --flag they would make a dash
suppress_warnings = ["misc.highlighting_failure"]  # a console's command that goes on in the next line

html_theme = "furo"
html_title = "minisgl"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


class PicturesOfBothThemes(SphinxTransform):
    """Of a picture `name-light.svg` that has a twin `name-dark.svg` the site shows the one that fits the page."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            dark = image["uri"].replace("-light.", "-dark.")
            if dark != image["uri"] and (Path(self.document["source"]).parent / dark).is_file():
                twin = image.deepcopy()
                twin["uri"] = dark
                twin["classes"] = ["only-dark"]
                image["classes"] = ["only-light"]
                image.parent.insert(image.parent.index(image) + 1, twin)


class FoldersAsNames(SphinxTransform):
    """A link to a folder of the repository is its name on the site, which has no page for it."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        folder = Path(self.document["source"]).parent
        for link in list(self.document.findall(addnodes.pending_xref)):
            if (folder / link["reftarget"]).is_dir():
                link.replace_self(link.children)


def add_navigation(app: Sphinx, document: str, source: list[str]) -> None:
    """Behind the README, where it does not disturb whoever reads that in the repository."""
    if document == START:
        source[0] += "".join(_toctree(caption, pages) for caption, pages in NAVIGATION.items())


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", *pages, "```\n"])


def add_index(app: Sphinx, failure: Exception | None) -> None:
    """Servers and people look for this name."""
    if failure is None:
        shutil.copyfile(Path(app.outdir) / f"{START}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    app.add_transform(PicturesOfBothThemes)
    app.add_transform(FoldersAsNames)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
