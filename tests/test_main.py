import re
import subprocess
import sys

import pytest


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "symjac", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def rows(output: str) -> dict[str, list[str]]:
    """The lines of the tables, split at runs of spaces: first cell -> the others."""
    lines = (re.split(r"\s{2,}", line.strip()) for line in output.splitlines())
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


def test_the_demo_reports_that_the_jacobian_is_the_matrix_itself():
    done = demo("--n", "64")
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    assert table["symjac.jacfwd(f)"][-2:] == ["yes", "yes"]
    assert table["jax.jit(jax.jacfwd(f))"][-1] == "no"
    assert "a copy of A" in table
    for name in (
        "two-layer MLP",
        "elementwise, x * sin(x)",
        "stencil, heat and reaction",
        "batched layer, tanh(X @ W)",
    ):
        assert float(table[name][-1]) < 1e-5
        assert table[name][-2].endswith("x")
    assert "..." in done.stderr and "..." not in done.stdout  # progress stays off standard output


@pytest.mark.parametrize("arguments", [("--n", "0"), ("--n", "many")])
def test_the_demo_rejects_a_bad_size(arguments):
    done = demo(*arguments)
    assert done.returncode == 2
    assert "--n" in done.stderr
