"""The folders of the package are floors, and imports point up."""

from __future__ import annotations

import ast
from pathlib import Path

import symjac

ROOT = Path(symjac.__file__).parent
FLOORS = ("_algebra", "_engine", "rules", "_memo", "_transforms", "_result", "_equinox", "_report")


def imported(path):
    """The modules of symjac that a file imports, as parts of their names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "symjac":
            parts = node.module.split(".")[1:]
            yield from ([parts] if parts else [[alias.name] for alias in node.names])


def test_every_folder_is_a_floor():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(FLOORS)


def test_imports_point_up():
    wrong = [
        f"{path.relative_to(ROOT)} imports {'.'.join(parts)}"
        for path in ROOT.glob("*/*.py")
        for parts in imported(path)
        if parts[0] in FLOORS and FLOORS.index(parts[0]) > FLOORS.index(path.parent.name)
    ]
    assert wrong == []


def test_what_is_used_everywhere_imports_no_floor():
    everywhere = [ROOT / "_compat.py", ROOT / "_types.py", ROOT / "_cost.py"]
    assert [p.name for p in everywhere for parts in imported(p) if parts[0] in FLOORS] == []
