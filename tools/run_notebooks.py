"""Runs the notebooks and writes their outputs back: ``python tools/run_notebooks.py [notebook ...]``.

With ``SYMJAC_SMALL=1`` in the environment they run on small sizes; ``--check`` writes nothing, and fails where a cell
raises or warns.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import nbformat  # pyright: ignore[reportMissingImports]
from nbclient import NotebookClient  # pyright: ignore[reportMissingImports]

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"


def run(path: Path) -> nbformat.NotebookNode:
    """Returns a notebook with the outputs of a run.

    Raises:
        nbclient.exceptions.CellExecutionError: where a cell raises.
        RuntimeError: where a cell writes to standard error, as a warning does.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise RuntimeError(f"{path.name}: {output.text}")
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main() -> None:
    """Runs the given notebooks, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__ and __doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        start = time.monotonic()
        notebook = run(path)
        if not options.check:
            nbformat.write(notebook, path)
        sys.stderr.write(f"{path.name}: {time.monotonic() - start:.0f} s\n")


if __name__ == "__main__":
    main()
