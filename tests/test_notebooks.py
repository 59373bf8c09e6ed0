"""The notebooks run from top to bottom on small sizes without a warning, and are kept with their outputs."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDED = ("nbclient", "nbformat", "ipykernel", "matplotlib", "diffrax", "lineax", "equinox")
EACH = pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in NOTEBOOKS])


def test_there_are_six():
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


@EACH
def test_it_is_kept_with_its_outputs(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(cell["execution_count"] for cell in cells)
    assert not any(o["output_type"] == "error" or o.get("name") == "stderr" for o in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs), "it has no figure"


@EACH
def test_it_runs_without_a_warning(path, monkeypatch):
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    monkeypatch.setenv("SYMJAC_SMALL", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, str(ROOT / "tools" / "run_notebooks.py"), "--check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
