"""Gather, scatter and dynamic slices: static and traced indices, and every mode."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, check_against_jax
from jax import lax
from rule_cases import case, check, each

import symjac
from symjac._engine.interpreter import push_basis
from symjac._engine.program import forward_program, trace

X, M, T = array(0, 5), array(1, 3, 4), array(2, 2, 3, 5)
ROWS, COLUMNS = jnp.array([2, 0, 2, 1]), jnp.array([3, 1, 0, 0])
OUTSIDE = jnp.array([2, -5, 7, 0])
FEW = jnp.array([1, 0])


def windows(x, i):
    """Slices of size two at several indexed axes."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(0, 1))
    return lax.gather(x, i, numbers, (2, 2), mode="fill", fill_value=0)


def add_windows(x, i, u, mode):
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(0, 1)
    )
    return lax.scatter_add(x, i, u, numbers, mode=mode)


CORNERS = jnp.array([[0, 1], [1, 2], [2, 2], [-1, 0]])
MODES = ("clip", "fill", "promise_in_bounds")

GATHERS = [
    case("rows", lambda x, i: x[i], M, ROWS),
    case("rows of a product", lambda x, i: (x * x[:1])[i], M, ROWS),
    case("columns", lambda x, i: jnp.sin(x)[:, i], M, ROWS),
    case("pairs", lambda x, i, j: x[i, j], M, ROWS, COLUMNS),
    case("grid", lambda x, i, j: x[i[:, None], j[None, :2]], M, ROWS, COLUMNS),
    case("apart", lambda x, i, j: x[i, :, j], T, jnp.array([1, 0]), jnp.array([4, 0])),
    case("one row", lambda x, i: x[i], M, jnp.array(1)),
    case("negative", lambda x, i: x[i], M, jnp.array([-1, 0])),
    case("unsigned", lambda x, i: x[i], M, jnp.array([1, 0], jnp.uint8)),
    case("no rows", lambda x, i: x[i], M, jnp.zeros((0,), jnp.int32)),
    case("of none", lambda x, i: x[:, i], array(3, 0, 4), ROWS),
    case("static range", lambda x: x[jnp.arange(3), (jnp.arange(3) + 1) % 4], M),
    case("static steps", lambda x: x[jnp.arange(0, 5, 2)], X),
    case("static array", lambda x: x[np.array([2, 0, 1])] * x, M),
    case("diagonal", jnp.diagonal, M),
    case("triangle", lambda x: x[jnp.triu_indices(3, 1)], M),
    case("take fills", lambda x, i: jnp.take(x, i, axis=1, fill_value=0.0), M, OUTSIDE),
    *(
        case(f"take {mode}", lambda x, i, mode=mode: jnp.take(x, i, axis=1, mode=mode), M, OUTSIDE)
        for mode in MODES[:2]
    ),
    *(case(f"get {mode}", lambda x, i, mode=mode: x.at[i].get(mode=mode), M, ROWS) for mode in MODES),
    case("along an axis", lambda x, i: jnp.take_along_axis(x, i, axis=1), M, jnp.array([[1], [3], [0]])),
    case("along rows", lambda x, i: jnp.take_along_axis(x, i, axis=0), M, jnp.array([[1, 2, 0, 0]])),
    case("windows", windows, M, CORNERS),
    case("of a gather", lambda x, i, j: x[i][j], M, ROWS, COLUMNS),
    case("of a scatter", lambda x, i: jnp.zeros(6).at[i].add(x)[i], X, jnp.array([1, 1, 5, 0, 2])),
    case("of a dense tangent", lambda x, i: (array(4, 12, 12) @ x.reshape(-1)).reshape(3, 4)[i], M, ROWS),
    case("of a broadcast", lambda x, i: jnp.broadcast_to(x[:, None], (5, 4))[i], X, ROWS),
    case("of a merge", lambda x, i: jnp.sin(x).reshape(-1)[i], M, jnp.array([11, 0, 5])),
    case("of a stencil", lambda x, i: (jnp.roll(x, 1) * x)[i], X, ROWS),
    case("vmap", lambda x, i: jax.vmap(lambda row, k: row[k])(x, i), M, jnp.array([1, 0, 3])),
    case("sort", jnp.sort, X),
    case("sort columns", lambda x: jnp.sort(x, axis=0), M),
    case("sort by another", lambda x, y: lax.sort((x, y), num_keys=1)[1], X, X**2),
    case("argsort", lambda x: x[jnp.argsort(x)], X),
    case("top k", lambda x: lax.top_k(x, 2)[0], M),
    case("argmax", lambda x: x[jnp.argmax(x)] * x, X),
]

SCATTERS = [
    case("add", lambda x, i: x.at[i].add(x**2), M, jnp.array([1, 1, 0])),
    case("add a row to many", lambda x, i: jnp.zeros((6, 4)).at[i].add(x[0]), M, ROWS),
    case("add a number to many", lambda x, i: jnp.zeros(6).at[i].add(x[0]), X, ROWS),
    case("add columns", lambda x, i: jnp.ones((3, 6)).at[:, i].add(x), M, ROWS),
    case("add one", lambda x, i: x.at[i].add(x[0]), X, jnp.array(2)),
    *(case(f"add {mode}", lambda x, i, mode=mode: x.at[:, i].add(x, mode=mode), M, OUTSIDE) for mode in MODES[:2]),
    *(
        case(
            f"add windows {mode}", lambda x, i, u, mode=mode: add_windows(x, i, u, mode), M, CORNERS, array(5, 4, 2, 2)
        )
        for mode in ("clip", "fill")
    ),
    case(
        "subtract",
        lambda x, i: lax.scatter_sub(x, i[:, None], x[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,))),
        M,
        FEW,
    ),
    case("set to a constant", lambda x, i: x.at[i].set(0.0), M, FEW),
    case("set", lambda x, i: x.at[i].set(x[1:] ** 2), M, FEW),
    case("set twice", lambda x, i: x.at[i].set(x[1:] ** 2), M, jnp.array([1, 1])),
    case("set unique", lambda x, i: x.at[i].set(x[1:] ** 2, unique_indices=True), M, FEW),
    case("set unique constant", lambda x, i: x.at[i].set(2.0, unique_indices=True), M, FEW),
    case("set pairs unique", lambda x, i: x.at[1, i].set(x[2, :2], unique_indices=True), M, jnp.array([0, 2])),
    case("set a static slice", lambda x: x.at[1:, :2].set(x[:2, 2:] ** 2), M),
    case("set a static column", lambda x: x.at[:, 1].set(0.0), M),
    case("set into ones", lambda x, i: jnp.ones((6, 4)).at[i].set(x), M, jnp.array([4, 0, 2])),
    case(
        "set outside",
        lambda x, i: x.at[i].set(x[:, :1], unique_indices=True, mode="drop").T,
        array(6, 4, 3),
        jnp.array([2, 9, 7, 0]),
    ),
    case("multiply by a constant", lambda x, i: x.at[i].mul(2.0), M, jnp.array([1, 1])),
    case("multiply unique", lambda x, i: x.at[i].mul(x[1:], unique_indices=True), M, FEW),
    case("divide", lambda x: x.at[0].divide(x[1]), M),
    case("power", lambda x: x.at[0].power(2.0), M),
    case("max", lambda x, i: x.at[i].max(x[1:]), M, FEW),
    case("min", lambda x: x.at[0].min(x[1]), M),
    case("vmap", lambda x, i: jax.vmap(lambda row, k: row.at[k].add(row[0]))(x, i), M, jnp.array([1, 0, 3])),
    case("segment sum", lambda x, i: jax.ops.segment_sum(x, i, 2), M, jnp.array([0, 1, 0])),
    case("of none", lambda x, i: jnp.ones((3, 4)).at[i].add(x), array(7, 0, 4), jnp.zeros((0,), jnp.int32)),
]

EXTREMES = [
    case("max outside", lambda x, i: x.at[i].max(x[1:]), M, jnp.array([1, 7])),
]

DYNAMIC = [
    case("slice", lambda x, i, j: lax.dynamic_slice(jnp.sin(x), (i, j), (2, 3)), M, jnp.array(1), jnp.array(0)),
    case("slice clamped", lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 2)), M, jnp.array(9), jnp.array(-9)),
    case("slice static", lambda x: lax.dynamic_slice(x, (1, 2), (2, 2)), M),
    case("slice whole", lambda x, i: lax.dynamic_slice(x, (0, i), (3, 4)), M, jnp.array(2)),
    case("slice to one", lambda x, i: lax.dynamic_index_in_dim(x, i, 1, keepdims=False), M, jnp.array(2)),
    case("slice to none", lambda x, i: lax.dynamic_slice(x, (i,), (0,)), X, jnp.array(2)),
    case("slice of a scatter", lambda x, i: lax.dynamic_slice(jnp.zeros(6).at[i].add(x[:2]), (i[0],), (3,)), X, FEW),
    case("update", lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] ** 2, (i, 7)), M, jnp.array(1)),
    case("update static", lambda x: lax.dynamic_update_slice(x, x[:2, :2] ** 2, (1, 1)), M),
    case("update by a constant", lambda x, i: lax.dynamic_update_slice(x, jnp.ones((2, 2)), (i, i)), M, jnp.array(1)),
    case("update a constant", lambda x, i: lax.dynamic_update_slice(jnp.ones((5, 6)), x, (i, 1)), M, jnp.array(1)),
    case("update whole", lambda x, i: lax.dynamic_update_slice(jnp.sin(x), x, (i,)), X, jnp.array(3)),
    case(
        "slice vmap",
        lambda x, i: jax.vmap(lambda r, k: lax.dynamic_slice(r, (k,), (2,)))(x, i),
        M,
        jnp.array([1, 0, 2]),
    ),
    case(
        "update vmap",
        lambda x, i: jax.vmap(lambda r, k: lax.dynamic_update_slice(r, r[:2] * 2, (k,)))(x, i),
        M,
        jnp.array([1, 0, 3]),
    ),
]

CASES = [*GATHERS, *SCATTERS, *EXTREMES, *DYNAMIC]


@each(GATHERS)
def test_gather(case):
    check(case)


@each([*SCATTERS, *EXTREMES])
def test_scatter(case):
    check(case)


@each(DYNAMIC)
def test_dynamic(case):
    check(case)


def tangent(f, *args):
    """The structured tangent of a function with one output with respect to its first argument."""
    traced, closed = trace(lambda *a: ([f(*a)], []), list(args), [0])
    program, consts = forward_program(traced, closed.consts, list(args), False).opened()
    found = []
    jax.make_jaxpr(lambda c, a: found.extend(push_basis(program, [], [*c, *a])[1]) or 0)(consts, list(args))
    return found[0]


def test_taken_by_index_sliced_and_stacked_is_one_term_that_shares_the_observation():
    """As in bundle adjustment: cameras are taken by index, sliced, crossed and stacked."""
    cameras, points, index = array(0, 3, 9), array(1, 6, 3), jnp.array([0, 2, 1, 1, 2, 0])

    def residual(cameras, points, index):
        camera = cameras[index]
        turned = points + jnp.cross(camera[:, :3], points) + jnp.sum(camera[:, :3] * points, 1, keepdims=True)
        moved = turned + camera[:, 3:6]
        return (
            moved[:, :2] / moved[:, 2:] * camera[:, 6:7] * (1 + camera[:, 7:8] * jnp.sum(moved[:, :2] ** 2, 1)[:, None])
        )

    (term,) = tangent(residual, cameras, points, index).blocks[0]
    (out, *_), (taken, *_) = term.out_axes, term.in_axes
    assert out.labels == taken.labels
    assert term.stored <= 6 * 2 * 9


def test_the_same_indices_taken_twice_are_shared():
    first, second, index = array(0, 5, 2), array(1, 5, 2), jnp.array([1, 4, 4])
    found = tangent(lambda x, y, i: x[:, 0][i] * y[i, 0] + x[:, 1][i] * y[i, 1], first, second, index)
    assert len({id(term.in_axes[0].array) for term in found.blocks[0]}) == 1


def test_static_indices_stay_affine():
    found = tangent(lambda x: x[jnp.arange(3), jnp.arange(3) + 1], M)
    (term,) = found.blocks[0]
    assert not hasattr(term.in_axes[0], "array") and not hasattr(term.in_axes[1], "array")


def test_start_of_a_window_in_what_is_dense_whatever_the_width_of_an_integer():
    def f(x):
        return lax.dynamic_update_slice(M.T @ x, 2 * x[:2], (jnp.sum(x > 0).astype(np.int32),))

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        check_against_jax(f, X[:3], modes=("jit",))


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_jacfwd_outside_of_jit(mode):
    got = symjac.jacfwd(lambda x: x.at[OUTSIDE].get(mode=mode, fill_value=0))(M)
    np.testing.assert_array_equal(got, jax.jacfwd(lambda x: x.at[OUTSIDE].get(mode=mode, fill_value=0))(M))


FAR = np.array([0, 1, 2, 99, -50, 3, 4, 5])


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev", "jacobian"])
@pytest.mark.parametrize("index", [FAR, np.append(FAR, [7, 8, 9, 1]), FAR[2:5]], ids=["square", "tall", "wide"])
@pytest.mark.parametrize("mode", [None, "clip", "fill", "promise_in_bounds"])
def test_reads_outside_are_those_of_the_mode_that_was_asked_for(transform, index, mode):
    """JAX's forward mode clips by default what its reverse mode drops, and the cheaper mode may stand in for either."""
    x = array(3, 8)

    def f(x, i):
        return jnp.sin(x).at[i].get(mode=mode, fill_value=0)

    def closed(x):
        return f(x, index)

    for i in (index, jnp.asarray(index)):
        np.testing.assert_allclose(
            getattr(symjac, transform)(f)(x, i), getattr(jax, transform)(f)(x, i), rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(getattr(symjac, transform)(closed)(x), getattr(jax, transform)(closed)(x), rtol=1e-5)


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
@pytest.mark.parametrize("mode", [None, "clip", "fill"])
def test_reads_outside_where_the_other_mode_is_much_cheaper(transform, mode):
    first, second = array(4, 40, 600) / 25, array(5, 600, 40) / 6
    narrow, wide = (first, array(6, 2, 40)) if transform == "jacfwd" else (array(7, 40, 2), second)
    index = np.arange(40) * 2 - 20

    def f(x):
        return wide @ jnp.tanh(narrow @ x).at[index].get(mode=mode, fill_value=0)

    x = array(8, narrow.shape[1])
    want = getattr(jax, transform)(f)(x)
    np.testing.assert_allclose(getattr(symjac, transform)(f)(x), want, rtol=1e-4, atol=1e-5)
