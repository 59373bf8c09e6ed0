"""The workloads: what is written by hand is right, and so is symjac; the guard and the accelerator's script run."""

import jax
import numpy as np
import pytest

import symjac
from benchmarks import check, gpu
from benchmarks.workloads import WORKLOADS, named

pytestmark = pytest.mark.fallback


@pytest.mark.parametrize("workload", [pytest.param(w, id=w.name) for w in WORKLOADS])
def test_every_way_gives_the_same(workload):
    case = workload.make(workload.sizes[0])
    with jax.numpy_rank_promotion("allow"):
        module = "hessian" if workload.kind == "hessian" else "jacfwd"
        want = np.asarray(jax.jit(getattr(jax, module)(case.function))(*case.args))
        scale = np.abs(want).max()
        for found in (getattr(symjac, module)(case.function)(*case.args), jax.jit(case.handwritten)(*case.args)):
            assert found.shape == want.shape
            np.testing.assert_allclose(found, want, atol=2e-5 * scale, rtol=1e-4)


def test_growth_is_found():
    before = {"symjac.jacfwd": {"flops": 1e6, "bytes": 1e6, "memory": 1e6}}
    after = {"symjac.jacfwd": {"flops": 1.2e6, "bytes": 1.01e6, "memory": 1e6}}
    assert check.compare("some", after, before) == ["some symjac.jacfwd: flops 1e+06 -> 1.2e+06"]


def test_unknown_workloads_are_named():
    with pytest.raises(ValueError, match="no workload nothing"):
        named(["nothing"])


def test_without_an_accelerator_nothing_is_measured(capsys):
    if jax.default_backend() != "cpu":
        pytest.skip("there is an accelerator")
    assert gpu.main() == 0
    assert "No accelerator" in capsys.readouterr().out
