"""Settings of the site: ``sphinx-build -W -c docs . build/site``.

The source is the whole project, so that pages may link to README.md, notebooks and
results where they are. Notebooks are shown with the outputs in their ipynb files, which
``python notebooks/show.py`` writes.
"""

import html
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers import TextLexer
from sphinx.util import logging

import dpsample
from dpsample.core.public import __version__, public_modules

sys.path.insert(0, str(Path(__file__).parent))
import reference_pages

project = "dpsample"
author = copyright = "dpsample developers"
release = version = __version__
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "notebooks/0*.ipynb",
    "notebooks/README.md",
    "studies/README.md",
    "studies/results/*.md",
    "benchmarks/README.md",
]
exclude_patterns = ["**/.*", "README.md", "build", "dist", "docs/*.py"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_design",
]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"

napoleon_google_docstring = False
napoleon_custom_sections = ["Guarantee"]
napoleon_use_param = napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_typehints = "none"
autosummary_generate = False
toc_object_entries = False
default_role = "autolink"
# Shapes of arrays, as (dim,), are taken for names.
suppress_warnings = ["ref.python"]

# Browsers show MathML by themselves, so that formulas need no script and no network.
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "dpsample"
html_show_sourcelink = html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 8,
}

API = Path(__file__).parent / "api"
# Code, formulas and examples, where a bar in a docstring is not an absolute value.
VERBATIM = re.compile(
    r"(``.*?``|:math:`[^`]*`|\.\. math::\n\n(?:[ ]+.*\n|\n)+|>>> (?:.+\n)+)"
)


def directives(module, name):
    """Lines of a page that document one public name, or say where that is done."""
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return [f"Module: :mod:`{value.__name__}`."]
    home = reference_pages.find_home(name, value)
    if home != module.__name__:
        return [f"See :py:obj:`{home}.{name}`."]
    path = f"{home}.{name}"
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        lines = [f".. auto{kind}:: {path}", "   :members:"]
        if home == "dpsample.estimators":  # fit and predict are their bases'
            lines.append("   :inherited-members: BaseEstimator")
        return lines
    if callable(value):
        return [f".. autofunction:: {path}"]
    # The page is about its module, which is part of the name already.
    return [f".. py:data:: {name}", "", f"   A constant: {type(value).__name__}."]


def page_of(module):
    """Text of the page about a public module."""
    name = module.__name__
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", ""]
    for public in module.__all__:
        lines += [public, "-" * len(public), "", *directives(module, public), ""]
    return "\n".join(lines)


def write_pages(app):
    """Write the generated pages, unless they are there as they should be."""
    del app
    API.mkdir(exist_ok=True)
    names = public_modules(dpsample)
    pages = {API / f"{n}.rst": page_of(importlib.import_module(n)) for n in names}
    pages[API / "index.rst"] = reference_pages.make_api_index()
    pages[API.parent / "reference" / "cli.rst"] = reference_pages.make_cli_page()
    for file, text in pages.items():
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")


def make_formula(node, **options):
    """Return a formula as MathML, or its source and a warning if that fails."""
    try:
        return tex2mathml(node.astext(), **options)
    except MathError as error:
        logger = logging.getLogger(__name__)
        logger.warning("%s in the formula %s", error, node.astext(), location=node)
        return html.escape(node.astext())


def write_inline_formula(translator, node):
    """Write a formula within a line."""
    translator.body.append(make_formula(node))
    raise nodes.SkipNode


def write_formula(translator, node):
    """Write a formula on a line of its own."""
    translator.body.append(f"<div>{make_formula(node, as_block=True)}</div>\n")
    raise nodes.SkipNode


def escape_bars(app, kind, name, obj, options, lines):
    """Keep |x| of docstrings from being taken for a substitution."""
    del app, kind, name, obj, options
    parts = VERBATIM.split("\n".join(lines) + "\n")
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def skip_fields(app, kind, name, obj, skip, options):
    """Leave out fields of named tuples, whose docstrings are their numbers.

    And what scikit-learn gives to every estimator.
    """
    del app, kind, options
    is_field = type(obj).__name__ == "_tuplegetter"
    is_theirs = str(getattr(obj, "__module__", "")).startswith("sklearn.")
    return True if is_field or is_theirs or name.endswith("_request") else skip


def shorten_results(app, docname, source):
    """Show figures and findings of a study. Its tables of means are files."""
    del app
    if docname.startswith("studies/results/"):
        name = Path(docname).name
        figures = source[0].partition("\n## Means\n")[0]
        source[0] = (
            f"{figures}\n\nAll means: [{name}.csv]({name}.csv). {describe_run(name)}\n"
        )


def describe_run(name):
    """Return by which commit and machine the results of a study were made."""
    readme = Path(__file__).parents[1] / "studies" / "README.md"
    _, _, table = readme.read_text("utf-8").partition("## Where the results come")
    row = re.search(rf"^\| \[{name}\].*", table, re.MULTILINE)
    *_, written, code, processor, seconds = row[0].strip("| ").split(" | ")
    commit = "was not recorded" if code == "not recorded" else f"is {code}"
    return (
        f"They were stored in commit {written}. The commit of the code that ran "
        f"{commit}. The processor was {processor}. All cells took {seconds} s. Peak "
        "memory was not recorded ([all studies]"
        "(/studies/README.md#where-the-results-come-from))."
    )


def point_to_start(app, error):
    """Let the folder of the site open its first page."""
    if error is None and app.builder.name == "html":
        page = '<meta http-equiv="refresh" content="0; url=docs/index.html">'
        (Path(app.outdir) / "index.html").write_text(page, "utf-8")


def setup(app):
    """Connect what is above."""
    app.add_lexer("csv", TextLexer)
    app.add_html_math_renderer(
        "mathml", (write_inline_formula, None), (write_formula, None)
    )
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", escape_bars, priority=400)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("source-read", shorten_results)
    app.connect("build-finished", point_to_start)
