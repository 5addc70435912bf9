"""Write notebooks with their outputs, for the site and for hosting sites.

``python notebooks/show.py`` runs every notebook and writes an ipynb file next to its
script. ``python notebooks/show.py 01 05`` does so for those whose names begin so.

What depends on the machine or on the moment is left out: numbers of cells, versions,
progress lines and other text on stderr. Pictures are vector graphics unless a PNG file
is smaller.
"""

import sys
from pathlib import Path

import jupytext
import nbformat

# Hosting sites show files of this size at once.
MAX_BYTES = 1_500_000
IMAGES = ("image/svg+xml", "image/png")


def show(script):
    """Run one notebook, and return it with the outputs that a reader needs."""
    # Only this needs the library, and tests of the rest go without it.
    from nbclient import NotebookClient

    notebook = jupytext.read(script)
    # Left out of the file. Names in vector graphics follow from the salt, and are
    # random without it.
    settings = """
%matplotlib inline
import matplotlib
from matplotlib_inline.backend_inline import set_matplotlib_formats
matplotlib.rcParams["svg.hashsalt"] = "dpsample"
set_matplotlib_formats("svg", "png", metadata={"Date": None})
"""
    notebook.cells.insert(0, nbformat.v4.new_code_cell(settings))
    client = NotebookClient(notebook, timeout=1800, kernel_name="python3")
    client.execute(cwd=str(script.parent))
    del notebook.cells[0]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python"}
        | {"name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.execution_count = None
            outputs = [simplify(output) for output in cell.outputs]
            cell.outputs = [output for output in outputs if output is not None]
    return notebook


def simplify(output):
    """Return an output without what depends on the machine, None if nothing is left."""
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    output.metadata = {}
    if output.output_type == "execute_result":
        output.execution_count = None
    # A display that has been erased, as a line of progress, is empty.
    if not any(output.data.values()):
        return None
    images = {kind: output.data[kind] for kind in IMAGES if kind in output.data}
    if images:
        kind = min(images, key=lambda name: len(images[name]))
        output.data = {kind: images[kind]}
    return output


def main(prefixes):
    """Write the notebooks whose names begin with one of the prefixes."""
    for script in sorted(Path(__file__).parent.glob("[0-9][0-9]_*.py")):
        if prefixes and not script.name.startswith(tuple(prefixes)):
            continue
        text = nbformat.writes(show(script))
        if len(text) > MAX_BYTES:
            sys.exit(f"{script.name}: {len(text)} bytes with outputs, too many")
        script.with_suffix(".ipynb").write_text(f"{text}\n", "utf-8")
        print(f"{script.stem}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
