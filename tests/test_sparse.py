"""Sparse matrices: exact positions where terms meet, and grids of a million unknowns."""

import sys
import time
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array
from jax.experimental import sparse

import symjac
from symjac._result.entries import pattern_of

scipy_sparse = pytest.importorskip("scipy.sparse")


def laplacian(u):
    """Periodic, in any number of dimensions."""
    shifted = [jnp.roll(u, shift, axis) for axis in range(u.ndim) for shift in (1, -1)]
    return sum(shifted) - 2 * u.ndim * u


def upwind(u):
    return -u * (u - jnp.roll(u, 1))


def brusselator(state):
    u, v = state
    growth = u**2 * v
    return jnp.stack([1 + growth - 4.4 * u + 0.1 * laplacian(u), 3.4 * u - growth + 0.1 * laplacian(v)])


def walls(u):
    """A Laplacian whose first and last rows are boundary conditions."""
    inner = u[2:] - 2 * u[1:-1] + u[:-2]
    return jnp.concatenate([u[:1] * 3, inner, u[-1:] - u[-2:-1]])


def periodic_by_concatenation(u):
    padded = jnp.concatenate([u[-1:], u, u[:1]])
    return padded[2:] + padded[:-2] - 2 * u


def edges(n):
    return np.arange(2 * n) % n, (3 * np.arange(2 * n) + 1) % n


def graph_laplacian(u):
    start, end = edges(u.shape[0])
    flow = u[end] - u[start]
    return jnp.zeros_like(u).at[start].add(flow).at[end].add(-flow)


def neumann_grid(u):
    padded = jnp.pad(u, 1, mode="edge")
    return padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2] - 4 * u


EXACT = {
    "walls": (walls, (7,)),
    "periodic_by_concatenation": (periodic_by_concatenation, (7,)),
    "concatenate": (lambda u: jnp.concatenate([u[:3] ** 2, u, u[2:] + u[:-2]]), (6,)),
    "overlapping_gathers": (lambda u: u[np.array([0, 1, 1, 3])] + 2 * u[np.array([0, 2, 1, 0])], (5,)),
    "at_add": (lambda u: u.at[np.array([0, 2, 2])].add(u[:3]), (5,)),
    "at_add_traced": (lambda u, i: u.at[i].add(u[:3]), (5,)),
    "at_set": (lambda u: u.at[1:3].set(u[3:5] ** 2), (6,)),
    "graph_laplacian": (graph_laplacian, (6,)),
    "neumann_grid": (neumann_grid, (4, 5)),
    "laplacian_of_two_points": (laplacian, (2,)),
    "laplacian_plane": (laplacian, (3, 4)),
    "laplacian_space": (laplacian, (3, 2, 4)),
    "brusselator": (brusselator, (2, 3, 4)),
    "upwind": (upwind, (5,)),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("jitted", [False, True])
def test_entries_are_exact(name, jitted):
    function, shape = EXACT[name]
    args = (jnp.array([1, 3, 3]),) if name == "at_add_traced" else ()
    x = array(1, *shape)
    want = np.asarray(jax.jacfwd(function)(x, *args)).reshape(-1, x.size)

    def matrix(x, *args):
        return symjac.linearize(lambda x: function(x, *args), x)[1].to_bcoo()

    found = (jax.jit(matrix) if jitted else matrix)(x, *args)
    np.testing.assert_allclose(found.todense(), want, rtol=1e-5, atol=1e-6)
    indices = np.asarray(found.indices)
    inside = indices[indices[:, 0] < want.shape[0]]
    keys = inside.astype(np.int64) @ np.array([want.shape[1], 1])
    assert (np.diff(keys) > 0).all()
    if not (jitted and args):
        assert len(inside) == len(indices) == found.nse
        # At other points other entries are zero by chance.
        points = [np.asarray(jax.jacfwd(function)(array(seed, *shape), *args)) for seed in range(2, 5)]
        nonzero = np.any([point.reshape(want.shape) != 0 for point in points], axis=0)
        assert found.nse == np.count_nonzero(nonzero)


def test_structural_zeros_are_left_out():
    _, jacobian = symjac.linearize(lambda x: jnp.zeros(8).at[2:5].set(x[:3]), array(1, 8))
    assert jacobian.nse == 3


def test_to_scipy():
    _, jacobian = symjac.linearize(walls, array(1, 7))
    found = jacobian.to_scipy()
    assert isinstance(found, scipy_sparse.csr_array) and found.has_sorted_indices and found.has_canonical_format
    np.testing.assert_allclose(found.toarray(), jacobian.as_matrix(), rtol=1e-6)
    _, jacobian = symjac.linearize(upwind, array(1, 7))
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda j: j.to_scipy().nnz)(jacobian)


def test_a_sparse_matrix_multiplies_in_a_jit():
    x = array(1, 9)
    run = jax.jit(lambda x, v: symjac.linearize(upwind, x)[1].to_bcoo() @ v)
    np.testing.assert_allclose(run(x, x), jax.jvp(upwind, (x,), (x,))[1], rtol=1e-4, atol=1e-5)


GRIDS = {
    "diff": (jnp.diff, (10**6,)),
    "laplacian_line": (laplacian, (10**6,)),
    "laplacian_plane": (laplacian, (1000, 1000)),
    "laplacian_space": (laplacian, (100, 100, 100)),
    "upwind": (upwind, (10**6,)),
    "brusselator_line": (brusselator, (2, 500_000)),
    "brusselator_plane": (brusselator, (2, 700, 700)),
}


@pytest.mark.parametrize("name", GRIDS)
def test_a_million_unknowns(name):
    function, shape = GRIDS[name]
    x = array(1, *shape)
    times = []
    for _ in range(3):
        start = time.process_time()
        _, jacobian = symjac.linearize(function, x)
        found = jax.block_until_ready(jacobian.to_bcoo())
        times.append(time.process_time() - start)
    assert times[0] < 10 and min(times[1:]) < 1, "seconds; 0.5 to 3 and 0.05 were measured"
    tracemalloc.start()
    pattern_of.__wrapped__(jacobian.layout)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * found.data.nbytes
    assert isinstance(found, sparse.BCOO)
    direction = array(2, *shape)
    want = jax.jit(lambda x, v: jax.jvp(function, (x,), (v,))[1])(x, direction)
    tolerance = 1e-4 * float(jnp.abs(want).max())
    np.testing.assert_allclose(jacobian(direction), want, atol=tolerance)
    np.testing.assert_allclose((found @ direction.ravel()).reshape(want.shape), want, atol=tolerance)


class Axes:
    """Records what is drawn."""

    def imshow(self, image, **options):
        self.image, self.options = image, options

    def set_xlabel(self, text):
        self.label = text

    def set_ylabel(self, text):
        pass


def test_spy():
    axes = Axes()
    _, jacobian = symjac.linearize(walls, array(1, 7))
    assert jacobian.spy(axes) is axes
    np.testing.assert_array_equal(axes.image != 0, np.asarray(jacobian.as_matrix()) != 0)
    _, jacobian = symjac.linearize(jnp.diff, jnp.zeros(10**6))
    jacobian.spy(axes)
    assert axes.image.shape == (500, 500) and axes.image.trace() == 500 and axes.image.sum() < 1100


@pytest.mark.parametrize("package", ["scipy.sparse", "matplotlib", "lineax"])
def test_a_missing_package(package, monkeypatch):
    _, jacobian = symjac.linearize(walls, array(1, 7))
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "symjac._result.lineax", raising=False)
    method = {"scipy.sparse": "to_scipy", "matplotlib": "spy", "lineax": "to_lineax"}[package]
    with pytest.raises(ImportError, match=f"needs the package {package.split('.')[0]}"):
        getattr(jacobian, method)()


def test_a_diagonal_by_its_entries(monkeypatch):
    monkeypatch.setattr("symjac._result.meet._DEAREST_MASK", 0)
    start, end = edges(50)
    weights = array(2, 100)

    def flow(x, start, end):
        return jnp.zeros(50).at[start].add(weights * jnp.sin(x)[end]) + x

    x = array(1, 50)
    want = np.diag(jax.jacfwd(flow)(x, start, end))
    _, jacobian = symjac.linearize(lambda x: flow(x, start, end), x)
    np.testing.assert_allclose(jacobian.diagonal(), want, rtol=1e-5, atol=1e-6)
    traced = jax.jit(lambda x, *ends: symjac.linearize(lambda x: flow(x, *ends), x)[1].diagonal())
    np.testing.assert_allclose(traced(x, start, end), want, rtol=1e-5, atol=1e-6)
