"""The structured result against the dense one: every method, in every structure, under JAX's transformations."""

import functools
import time

import gallery
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, assert_close, assert_same, flops, positive
from jax import lax

import symjac

X = array(1, 6)
MATRIX = array(2, 4, 6)
CASES = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in gallery.CASES])


def of_arguments(case):
    """The function of the differentiated arguments alone, and these."""
    argnums = (case.argnums,) if isinstance(case.argnums, int) else case.argnums

    def function(*primals):
        args = list(case.args)
        for i, primal in zip(argnums, primals, strict=True):
            args[i] = primal
        return case.function(*args)

    return function, [case.args[i] for i in argnums]


def dense(f, *primals):
    """The matrix that JAX computes."""
    blocks = jax.jit(jax.jacfwd(f, argnums=tuple(range(len(primals)))))(*primals)
    outs = jax.tree.leaves(jax.eval_shape(f, *primals))
    ins = jax.tree.leaves(primals)
    leaves = iter(jax.tree.leaves(blocks))
    return np.block([[np.asarray(next(leaves)).reshape(out.size, leaf.size) for leaf in ins] for out in outs])


def normal_like(seed, tree):
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten([array(seed + i, *jnp.shape(leaf), dtype=leaf.dtype) for i, leaf in enumerate(leaves)])


def close(actual, expected, name="", **tolerances):
    assert_close(jnp.asarray(actual), jnp.asarray(expected), name, **{"rtol": 1e-4, **tolerances})


def check(f, *primals):
    """Compares every method of the Jacobian with the dense one, and returns it."""
    value, jacobian = symjac.linearize(f, *primals)
    matrix = dense(f, *primals)
    jax.tree.map(close, value, f(*primals))
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    assert_same(jacobian.materialise(), jax.jit(jax.jacfwd(f, argnums))(*primals), "materialise", rtol=1e-4)
    close(jacobian.as_matrix(), matrix, "as_matrix")
    check_products(f, primals, jacobian)
    check_sparse(jacobian, matrix)
    close(jacobian.row_norms(), np.linalg.norm(matrix, axis=1), "row_norms")
    close(jacobian.column_norms(), np.linalg.norm(matrix, axis=0), "column_norms")
    if matrix.shape[0] == matrix.shape[1]:
        close(jacobian.diagonal(), np.diag(matrix), "diagonal")
        close(jacobian.trace(), np.trace(matrix), "trace", atol=1e-3)
    check_structure(jacobian, matrix)
    return jacobian


def check_products(f, primals, jacobian):
    tangents = normal_like(5, primals)
    want = jax.jvp(f, primals, tangents)[1]
    assert_same(jacobian(*tangents), want, "product", rtol=1e-3)
    cotangent = normal_like(6, want)
    pulled = jax.vjp(f, *primals)[1](cotangent)
    assert_same(jacobian.T(cotangent), pulled if len(primals) > 1 else pulled[0], "transposed product", rtol=1e-3)
    assert jax.tree.structure(jacobian.T.T) == jax.tree.structure(jacobian)
    close(jacobian.T.as_matrix(), jacobian.as_matrix().T, "transpose")


def check_sparse(jacobian, matrix):
    sparse = jacobian.to_bcoo()
    close(sparse.todense(), matrix, "to_bcoo")
    keys = np.asarray(sparse.indices).astype(np.int64) @ np.array([matrix.shape[1], 1])
    assert (np.diff(keys) > 0).all(), "sorted, without duplicates"
    assert sparse.nse == jacobian.nse
    close(jax.jit(lambda j: j.to_bcoo().todense())(jacobian), matrix, "to_bcoo in jit")
    if not sparse.dtype == jnp.bfloat16:
        close(jacobian.to_scipy().toarray(), matrix, "to_scipy")


def check_structure(jacobian, matrix):
    structure = jacobian.structure
    rows, columns = np.nonzero(matrix)
    if structure.band is not None and rows.size:
        assert structure.band[0] <= (columns - rows).min() and (columns - rows).max() <= structure.band[1]
    assert not structure.is_lower_triangular or not np.triu(matrix, 1).any()
    assert not structure.is_upper_triangular or not np.tril(matrix, -1).any()
    assert str(structure) and repr(jacobian).startswith("Jacobian(")


@CASES
def test_every_method_on_the_gallery(case):
    if case.name == "where_guards_inf":
        pytest.skip("jax.jvp gives NaN there, where the Jacobian is zero")
    function, primals = of_arguments(case)
    check(function, *primals)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in gallery.CASES[2::7]])
def test_kept_as_a_linear_program(case, monkeypatch):
    monkeypatch.setattr("symjac._result.linearize._SMALL", -(10**18))
    function, primals = of_arguments(case)
    _, jacobian = symjac.linearize(lambda *args: function(*args), *primals)
    check_products(function, primals, jacobian)
    close(jacobian.as_matrix(), dense(function, *primals), "as_matrix")


# -- the value, the trees and the arguments -------------------------------------------------------------------------


def test_a_linear_map_is_its_matrix():
    _, jacobian = symjac.linearize(lambda x: MATRIX @ x, X)
    assert jacobian.materialise() is MATRIX and jacobian.as_matrix() is MATRIX


def test_trees_in_and_out():
    def function(first, second):
        return {"sum": first["a"] + second, "product": (first["a"] * first["b"], second**2)}

    check(function, {"a": X, "b": array(3, 6)}, array(4, 6))


def test_aux():
    value, jacobian, aux = symjac.linearize(lambda x: (x**2, {"x": x, "name": "squares"}), X, has_aux=True)
    close(value, X**2)
    close(jacobian.diagonal(), 2 * X)
    assert aux["name"] == "squares"
    close(aux["x"], X)


def test_numbers_are_primals():
    value, jacobian = symjac.linearize(lambda x: x**2, 3.0)
    assert float(value) == 9.0 and float(jacobian(1.0)) == 6.0 and jacobian.shape == (1, 1)


def test_integers_have_no_tangents():
    _, jacobian = symjac.linearize(lambda x, i: (x[i] * 2, i + 1), X, jnp.array([3, 1]))
    tangent = np.zeros(2, jax.dtypes.float0)
    picked, counted = jacobian(X, tangent)
    close(picked, 2 * X[np.array([3, 1])])
    assert counted.dtype == jax.dtypes.float0
    with pytest.raises(TypeError, match="float0"):
        jacobian(X, jnp.zeros(2))


def test_a_function_that_looks_at_values():
    def function(x):
        return jnp.sin(x) if x[0] > 0 else jnp.cos(x)

    _, jacobian = symjac.linearize(function, jnp.array([1.0, 2.0]))
    close(jacobian.diagonal(), np.cos([1.0, 2.0]))


def test_custom_rules_are_followed():
    @jax.custom_jvp
    def function(x):
        return jnp.sin(x)

    function.defjvp(lambda primals, tangents: (function(primals[0]), 3 * tangents[0]))
    _, jacobian = symjac.linearize(lambda x: function(x), X)
    assert jacobian.structure.kind == "scaled identity"
    close(jacobian.diagonal(), jnp.full(6, 3.0))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_dtypes(dtype):
    point, matrix = array(1, 6, dtype=dtype), array(2, 4, 6, dtype=dtype)
    _, jacobian = symjac.linearize(lambda x: matrix @ jnp.sin(x) + jnp.diff(x)[:4], point)
    assert jacobian.dtype == dtype
    want = jax.jacfwd(lambda x: matrix @ jnp.sin(x) + jnp.diff(x)[:4])(point)
    rtol = 5e-2
    for result, expected in (
        (jacobian.materialise(), want),
        (jacobian.to_bcoo().todense(), want),
        (jacobian(point), want @ point),
        (jacobian.T(point[:4]), want.T @ point[:4]),
    ):
        assert result.dtype == dtype
        close(result, expected, rtol=rtol)


def test_complex_functions_of_real_arrays():
    def function(x):
        return jnp.exp(lax.complex(jnp.zeros_like(x), x)) * x.sum().astype(jnp.complex64)

    _, jacobian = symjac.linearize(function, X)
    want = jax.jacfwd(function)(X)
    np.testing.assert_allclose(jacobian.materialise(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jacobian(X), jax.jvp(function, (X,), (X,))[1], rtol=1e-4, atol=1e-5)
    cotangent = lax.complex(array(3, 6), array(4, 6))
    np.testing.assert_allclose(jacobian.T(cotangent), jax.vjp(function, X)[1](cotangent)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jacobian.row_norms(), np.linalg.norm(want, axis=1), rtol=1e-4)
    np.testing.assert_allclose(jacobian.diagonal(), np.diag(want), rtol=1e-4, atol=1e-5)


def test_holomorphic_functions():
    point = lax.complex(array(3, 5), array(4, 5))
    _, jacobian = symjac.linearize(lambda z: jnp.exp(z) * jnp.roll(z, 1), point)
    want = jax.jacfwd(lambda z: jnp.exp(z) * jnp.roll(z, 1), holomorphic=True)(point)
    np.testing.assert_allclose(jacobian.materialise(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jacobian(point), want @ point, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jacobian.column_norms(), np.linalg.norm(want, axis=0), rtol=1e-4)


@pytest.mark.parametrize(
    "function",
    [jnp.conj, jnp.abs, lambda z: z * jnp.conj(z), lambda z: lax.complex(jnp.real(z), jnp.imag(z))],
    ids=["conj", "abs", "square", "parts"],
)
def test_what_is_not_holomorphic_has_no_complex_jacobian(function):
    point = lax.complex(array(3, 5), array(4, 5))
    with pytest.raises(TypeError, match="holomorphic"):
        symjac.linearize(function, point)


def test_complex_constants_of_a_complex_function_may_be_conjugated():
    point = lax.complex(array(3, 5), array(4, 5))
    _, jacobian = symjac.linearize(lambda z: z * jnp.conj(point), point)
    np.testing.assert_allclose(jacobian.diagonal(), np.conj(point), rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_small_and_empty_arrays(n):
    _, jacobian = symjac.linearize(lambda x: jnp.concatenate([x, jnp.sin(x)]), jnp.ones(n))
    assert jacobian.materialise().shape == (2 * n, n) and jacobian.as_matrix().shape == (2 * n, n)
    assert jacobian.to_bcoo().todense().shape == (2 * n, n)
    assert jacobian(jnp.ones(n)).shape == (2 * n,) and jacobian.T(jnp.ones(2 * n)).shape == (n,)
    assert jacobian.row_norms().shape == (2 * n,)
    _, square = symjac.linearize(jnp.sin, jnp.ones(n))
    assert square.diagonal().shape == (n,) and str(square.structure)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(("padding", "stride"), [((2, 2), 1), ((2, 2), 2), ((3, 0), 3)])
def test_windows_that_lie_in_the_padding(n, padding, stride):
    kernel = array(7, 1, 1, 2)

    def f(x):
        return lax.conv_general_dilated(x[None, None], kernel, (stride,), [padding])[0, 0]

    check(f, array(8, n))


def test_the_diagonal_of_blocks_that_lead_outside():
    kernel = array(7, 1, 1, 3, 2)

    def f(x, _):
        rows = x.reshape((1, 1, 1, -1))
        return jnp.zeros(()), lax.conv_general_dilated(rows, kernel, (2, 1), "SAME", rhs_dilation=(2, 1))

    check(f, array(8, 5), array(9, 1))


def test_the_diagonal_of_rows_that_are_dropped_or_belong_to_another_input():
    def f(x, y, _):
        rows = jnp.sin(y)[np.array([0, 0, 0])]
        return jax.ops.segment_sum(rows, np.array([0, -3, -3]), num_segments=3) + jnp.zeros(3) * x

    check(f, array(8), array(9, 1), array(10))


def test_zero_size_axes():
    _, jacobian = symjac.linearize(lambda x: jnp.tanh(x @ jnp.ones((3, 0))), jnp.ones((4, 3)))
    assert jacobian.materialise().shape == (4, 0, 4, 3)
    assert jacobian.T(jnp.zeros((4, 0))).shape == (4, 3)
    assert jacobian.structure.kind == "zero"


def test_no_dependence():
    _, jacobian = symjac.linearize(lambda x: jnp.ones(3), X)
    assert jacobian.structure.kind == "zero" and jacobian.nse == 0
    assert not jacobian.to_bcoo().todense().any() and not jacobian(X).any() and not jacobian.row_norms().any()


# -- a pytree -------------------------------------------------------------------------------------------------------


def stencil(x):
    return x * jnp.roll(x, 1) + 2 * x


def test_equal_programs_give_equal_trees():
    first, second = (symjac.linearize(lambda x: stencil(x) + MATRIX.T @ (MATRIX @ x), scale * X)[1] for scale in (1, 2))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    traced = 0

    @jax.jit
    def run(jacobian, v):
        nonlocal traced
        traced += 1
        return jacobian(v)

    run(first, X), run(second, X)
    assert traced == 1


def test_leaves_a_jit_and_enters_a_scan():
    jacobian = jax.jit(lambda x: symjac.linearize(stencil, x)[1])(X)
    want = dense(stencil, X)
    close(jacobian.as_matrix(), want)

    def step(carry, _):
        jacobian, x = carry
        x = jacobian(x)
        return (symjac.linearize(stencil, x)[1], x), jacobian.trace()

    (_, last), traces = lax.scan(step, (jacobian, X), None, length=2)
    close(traces[0], np.trace(want))
    close(last, dense(stencil, want @ X) @ (want @ X), rtol=1e-3)


def test_vmap():
    points = array(7, 3, 6)
    jacobians = jax.vmap(lambda x: symjac.linearize(stencil, x)[1])(points)
    want = np.stack([dense(stencil, x) for x in points])
    close(jax.vmap(lambda j: j.as_matrix())(jacobians), want)
    close(jax.vmap(lambda j, v: j(v))(jacobians, points), np.einsum("bij,bj->bi", want, points))
    close(jax.vmap(lambda j: j.diagonal())(jacobians), np.einsum("bii->bi", want))
    with pytest.raises(ValueError, match="vmap"):
        jacobians(points[0])


@pytest.mark.parametrize(
    "result",
    [
        lambda j: jnp.sum(j(X) ** 2),
        lambda j: jnp.sum(j.T(X) ** 2),
        lambda j: jnp.sum(j.diagonal() ** 3),
        lambda j: jnp.sum(j.materialise() ** 2),
        lambda j: jnp.sum(j.row_norms()),
        lambda j: jnp.sum(j.to_bcoo().data ** 2),
        lambda j: jnp.trace(j.as_matrix()),
    ],
    ids=["product", "transposed", "diagonal", "materialise", "row_norms", "to_bcoo", "as_matrix"],
)
def test_grad(result):
    def ours(x):
        return result(symjac.linearize(lambda x: jnp.sin(x) * jnp.roll(x, 1), x)[1])

    step = 1e-2
    gradient, direction = jax.jit(jax.grad(ours))(X), array(8, 6)
    difference = (ours(X + step * direction) - ours(X - step * direction)) / (2 * step)
    np.testing.assert_allclose(gradient @ direction, difference, rtol=2e-2, atol=1e-2)


# -- products -------------------------------------------------------------------------------------------------------


def test_matmul():
    _, jacobian = symjac.linearize(lambda x: jnp.sin(MATRIX @ x), X)
    matrix = jacobian.as_matrix()
    close(jacobian @ X, matrix @ X)
    close(jacobian @ array(9, 6, 3), matrix @ array(9, 6, 3))
    close(array(9, 4) @ jacobian, array(9, 4) @ matrix)
    close(array(9, 3, 4) @ jacobian, array(9, 3, 4) @ matrix)
    close(jacobian.T @ array(9, 4), matrix.T @ array(9, 4))


def transformer(weights, x):
    query, key, value = (x @ w for w in weights[:3])
    x = x + jax.nn.softmax(query @ key.T / x.shape[-1] ** 0.5) @ value
    return x + jnp.tanh(x @ weights[3]) @ weights[4]


PRODUCTS = {
    "mlp": (lambda w, x: w[2] @ jnp.tanh(w[1] @ jnp.tanh(w[0] @ x)), [(40, 30), (50, 40), (20, 50)], (30,)),
    "batched_mlp": (lambda w, x: jnp.tanh(x @ w[0]) @ w[1], [(30, 40), (40, 20)], (16, 30)),
    "residual_mlp": (
        lambda w, x: functools.reduce(lambda x, i: x + w[1] @ jnp.tanh(w[0] @ x), range(4), x),
        [(40, 30), (30, 40)],
        (30,),
    ),
    "softmax": (lambda w, x: jax.nn.softmax(x), [], (100,)),
    "attention": (gallery.attention, [(16, 16)] * 3, (32, 16)),
    "transformer": (transformer, [(16, 16)] * 3 + [(16, 32), (32, 16)], (32, 16)),
    "convolution": (lambda w, x: jnp.tanh(gallery.convolve(x, w[0])), [(4, 3, 3, 3)], (2, 3, 12, 14)),
    "convolutions": (
        lambda w, x: gallery.convolve(jnp.tanh(gallery.convolve(x, w[0])), w[1]),
        [(4, 3, 3, 3), (5, 4, 3, 3)],
        (2, 3, 12, 14),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_costs_no_more_than_jvp_and_vjp(name):
    function, shapes, shape = PRODUCTS[name]
    weights = [array(10 + i, *s) / s[-1] ** 0.5 for i, s in enumerate(shapes)]
    x, of_x = array(9, *shape), functools.partial(function, weights)
    value, jacobian = jax.eval_shape(lambda x: symjac.linearize(of_x, x), x)
    v, u = array(8, *shape), array(7, *value.shape)
    pushed, pulled = jax.jvp(of_x, (x,), (v,))[1], jax.vjp(of_x, x)[1](u)[0]
    # The weights are arguments, so that XLA folds nothing.
    jvp = flops(lambda w, x, v: jax.jvp(functools.partial(function, w), (x,), (v,)), weights, x, v)
    vjp = flops(lambda w, x, u: jax.vjp(functools.partial(function, w), x)[1](u), weights, x, u)
    assert flops(lambda j, v: j(v), jacobian, v) <= 1.1 * jvp
    assert flops(lambda j, u: j.T(u), jacobian, u) <= 1.1 * vjp
    _, jacobian = symjac.linearize(of_x, x)
    close(jacobian(v), pushed, rtol=1e-3)
    close(jacobian.T(u), pulled, rtol=1e-3)


# -- parts ----------------------------------------------------------------------------------------------------------


def test_blocks():
    weights, x = array(3, 3, 2), array(4, 5, 3)
    _, jacobian = symjac.linearize(lambda x: jnp.tanh(x @ weights), x)
    want = jax.vmap(jax.jacfwd(lambda row: jnp.tanh(row @ weights)))(x)
    close(jacobian.blocks(0), want)
    assert jacobian.structure.kind == "block diagonal" and jacobian.structure.blocks[0][0].block_shape == (2, 3)


def test_blocks_of_trees_and_of_a_later_axis():
    def function(x, y):
        return x**2 * y.sum(0), jnp.cumsum(y, axis=0)

    x, y = array(3, 4), array(4, 3, 4)
    _, jacobian = symjac.linearize(function, x, y)
    rows = jax.vmap(lambda x, y: jax.jacfwd(lambda x, y: function(x, y), (0, 1))(x, y), (0, 1))(x, y)
    want = np.concatenate(
        [
            np.concatenate([np.asarray(b).reshape(4, size, -1) for b in row], 2)
            for row, size in zip(rows, (1, 3), strict=True)
        ],
        1,
    )
    close(jacobian.blocks(-1), want)


def test_blocks_of_what_has_none():
    _, jacobian = symjac.linearize(lambda x: jnp.sin(x @ array(3, 3, 3)), array(4, 5, 3))
    with pytest.raises(ValueError, match="not block diagonal in axis 1"):
        jacobian.blocks(1)
    with pytest.raises(ValueError, match="no axis 2"):
        jacobian.blocks(2)
    _, jacobian = symjac.linearize(lambda x: x[:2], X)
    with pytest.raises(ValueError, match=r"sizes are \[2, 6\]"):
        jacobian.blocks(0)


def test_the_diagonal_of_what_is_not_square():
    _, jacobian = symjac.linearize(jnp.diff, X)
    with pytest.raises(ValueError, match="5 x 6"):
        jacobian.diagonal()


def test_the_diagonal_of_other_shapes_out_than_in():
    def function(x):
        return (jnp.sin(x).reshape(3, 2) @ array(3, 2, 2)).T

    _, jacobian = symjac.linearize(function, X)
    close(jacobian.diagonal(), np.diag(dense(function, X)))


@pytest.mark.parametrize("n", [10**6])
def test_one_pass_over_a_separable_function_and_a_chain(n):
    x = jnp.linspace(-1.0, 1.0, n)
    _, hessian = symjac.linearize(jax.grad(lambda x: jnp.sum(jnp.sin(x) * x**2)), x)
    close(hessian.diagonal(), -jnp.sin(x) * x**2 + 4 * x * jnp.cos(x) + 2 * jnp.sin(x), atol=1e-4)
    assert hessian.structure.kind == "diagonal"
    _, hessian = symjac.linearize(jax.grad(gallery.banded), x)
    want = jnp.zeros(n).at[1:].add(200.0).at[:-1].add(1200.0 * x[:-1] ** 2 - 400.0 * x[1:] + 2.0)
    close(hessian.diagonal(), want)
    assert hessian.structure.kind == "tridiagonal"


def test_norms_of_a_large_softmax():
    n = 10**5
    _, jacobian = symjac.linearize(jax.nn.softmax, jnp.linspace(0.0, 20.0, n))
    p = np.asarray(jax.nn.softmax(jnp.linspace(0.0, 20.0, n)), np.float64)
    want = np.sqrt(np.maximum(p**2 - 2 * p**3 + p**2 * np.sum(p**2), 0))
    np.testing.assert_allclose(jacobian.row_norms(), want, rtol=1e-3, atol=1e-9)
    assert jacobian.structure.kind == "diagonal plus low rank"
    np.testing.assert_allclose(jacobian.trace(), np.sum(p - p**2), rtol=1e-3)


# -- structure ------------------------------------------------------------------------------------------------------

KINDS = {
    "zero": lambda x: jnp.ones(3),
    "identity": lambda x: x + 1,
    "scaled identity": lambda x: 3 * x,
    "diagonal": jnp.sin,
    "tridiagonal": gallery.heat_pad,
    "banded": jnp.diff,
    "permutation": lambda x: x[::-1],
    "selection": lambda x: x[1::2],
    "low rank": lambda x: array(3, 6) * jnp.sum(x),
    "diagonal plus low rank": jax.nn.softmax,
    "dense": lambda x: array(3, 5, 6) @ x,
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    _, jacobian = symjac.linearize(KINDS[kind], X)
    assert jacobian.structure.kind == kind
    assert kind in str(jacobian.structure) and kind in repr(jacobian)


def test_the_structure_of_trees_names_the_leaves():
    _, jacobian = symjac.linearize(lambda p: {"y": p["w"] @ p["x"]}, {"w": MATRIX, "x": X})
    assert str(jacobian.structure).splitlines() == [
        "output['y'] by input['w']: block diagonal(1 x 6) 4 x 24",
        "output['y'] by input['x']: dense 4 x 6",
    ]


def test_triangles():
    _, jacobian = symjac.linearize(lambda x: x - jnp.pad(x, (1, 0))[:-1], X)
    structure = jacobian.structure
    assert structure.is_lower_triangular and structure.is_tridiagonal
    assert not structure.is_upper_triangular and not structure.is_diagonal


# -- bad input ------------------------------------------------------------------------------------------------------


def test_bad_input():
    _, jacobian = symjac.linearize(lambda x: MATRIX @ x, X)
    with pytest.raises(ValueError, match=r"\(5,\).*\(6,\)"):
        jacobian @ jnp.ones(5)
    with pytest.raises(TypeError, match=r"int32.*float32"):
        jacobian @ jnp.ones(6, jnp.int32)
    with pytest.raises(TypeError, match="1 tangent"):
        jacobian(X, X)
    with pytest.raises(TypeError, match="tree"):
        jacobian((X,))
    with pytest.raises(ValueError, match="at least one"):
        symjac.linearize(lambda: X)
    with pytest.raises(TypeError, match="callable"):
        symjac.linearize(3, X)
    _, jacobian = symjac.linearize(lambda x, y: x + y, X, X)
    with pytest.raises(TypeError, match="2"):
        jacobian @ X


# -- random programs ------------------------------------------------------------------------------------------------

STEPS = [
    jnp.sin,
    lambda x: x * jnp.roll(x, 1, 0),
    lambda x: x[1:] - x[:-1] if x.shape[0] > 1 else x,
    lambda x: jnp.concatenate([x, 2 * x[:2]]) if x.shape[0] < 8 else x[:5],
    lambda x: x[::-1],
    lambda x: x[np.arange(x.shape[0]) // 2],
    lambda x: x.at[np.arange(x.shape[0]) % 2].add(x),
    lambda x: x.T if x.ndim == 2 else x,
    lambda x: x.reshape(-1),
    lambda x: x.reshape(x.size // 2, 2) if x.size % 2 == 0 and x.size else x,
    lambda x: x @ array(30, x.shape[-1], 3),
    lambda x: jax.nn.softmax(x, axis=-1),
    lambda x: x - x.mean(0, keepdims=True),
    lambda x: jnp.where(positive(31, *x.shape) > 1.0, x, 0.5 * x),
    lambda x: jnp.pad(x, [(1, 1)] + [(0, 0)] * (x.ndim - 1)),
    lambda x: jnp.cumsum(x, axis=0),
    lambda x: x + jnp.sum(x) * 0.1,
]


@hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
@hypothesis.given(st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=5), st.sampled_from([(6,), (4, 3)]))
def test_random_programs(steps, shape):
    def function(x):
        for step in steps:
            x = STEPS[step](x)
        return x

    check(function, array(32, *shape))


# -- time -----------------------------------------------------------------------------------------------------------


def test_a_first_call_is_fast():
    x = jnp.linspace(0.0, 1.0, 10**6)
    start = time.perf_counter()
    _, jacobian = symjac.linearize(lambda x: -x * (x - jnp.roll(x, 1)), x)
    jax.block_until_ready(jacobian)
    assert time.perf_counter() - start < 5
