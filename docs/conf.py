"""Sphinx: the Markdown pages, the API reference from docstrings, and the gallery of examples."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import attnknn
from tools.api_pages import write_api_pages

project = "AttnKNN"
author = "The AttnKNN authors"
copyright = "the AttnKNN authors. MIT license"
version = release = attnknn.__version__
language = "en"

# The API reference and the gallery are generated; .gitignore names both folders.
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery/**/*.md5", "gallery/**/*.ipynb", "gallery/**/*.py"]
nitpicky = False
default_role = "code"

# Markdown
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# API reference
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings state types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the class template lists members

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "write_computation_times": False,  # that page would load scripts from elsewhere
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib", "tools.gallery_style.set_style"),
    "default_thumb_file": str(ROOT / "docs" / "_static" / "logo.svg"),
    "show_signature": False,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("attnknn",),
}

# Pages
html_theme = "pydata_sphinx_theme"
html_title = "AttnKNN"
html_static_path = ["_static"]
html_css_files = ["attnknn.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "AttnKNN"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
    "back_to_top_button": False,
}
html_sidebars = {"index": []}
html_context = {"default_mode": "auto"}
toc_object_entries_show_parents = "hide"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

ROOT_FILES = ("architecture", "changelog", "contributing")
MARKUP = re.compile(r"\||(?<=\w)_(?=[\s,.;:)\]]|$)|(?<=, )\*(?=\w+\))")


def rewrite_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Show files of the root as pages, and point links beside `docs/` to their pages."""
    if docname in ROOT_FILES:
        path = ROOT / f"{docname.upper()}.md"
        app.env.note_dependency(str(path))
        source[0] = re.sub(r"\]\(docs/", "](/", path.read_text())
    text = re.sub(r"\[([^\]]*)\]\((?:\.\./)*attnknn/[^)]*\)", r"\1", source[0])  # source files
    root_file = rf"\]\((?:\.\./)*({'|'.join(name.upper() for name in ROOT_FILES)})\.md"
    source[0] = re.sub(root_file, lambda found: f"](/{found[1].lower()}.md", text)


def escape_markup(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Show |x|, (n, width_) and (B, *size) in docstrings as they are; in reST they are markup."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...", "..")):
            continue
        parts = line.split("`")
        parts[::2] = [re.sub(MARKUP, r"\\\g<0>", part) for part in parts[::2]]
        lines[number] = "`".join(parts)


def skip_member(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out what scikit-learn adds to every estimator that routes metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    """Write the pages of the API reference, then let Sphinx read the sources."""
    write_api_pages(Path(app.srcdir) / "api")
    app.connect("source-read", rewrite_links)
    app.connect("autodoc-process-docstring", escape_markup, priority=900)  # after numpydoc
    app.connect("autodoc-skip-member", skip_member)
