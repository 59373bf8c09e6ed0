"""The page of the coverage says what the engine is observed to do on the running JAX."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "tools" / "coverage.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.fallback
def test_the_page_lists_every_linear_primitive_with_the_kind_that_is_observed(tool):
    written, found = tool.written(), tool.entries()
    assert set(found) <= set(written), "run tools/coverage.py"
    different = {
        name: (entry.kind, written[name].kind) for name, entry in found.items() if entry.kind != written[name].kind
    }
    assert not different, "run tools/coverage.py"


def test_the_page_is_as_the_tool_writes_it(tool):
    assert tool.PAGE.read_text() == tool.page(tool.written())


def test_each_proof_is_a_case(tool):
    places = {proof for proof, _ in tool.cases()}
    for name, entry in tool.written().items():
        if entry.proof.startswith("`"):
            assert entry.proof in places, name
