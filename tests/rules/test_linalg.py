"""Solves keep the deltas of the axes that they do not act on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest
from helpers import array, assert_same, check_against_jax, flops
from jax import lax
from rule_cases import case, check, each

import symjac

N, B = 4, 5
EYE = np.eye(N, dtype=np.float32)
A, AS = array(0, N, N) + 4 * EYE, array(1, B, N, N) + 4 * EYE[None]
P = A @ A.T
X, XS, COLUMNS, M = array(2, N), array(3, B, N), array(4, N, 6), array(5, N, 3)
LOWER, UPPER = jnp.tril(A), jnp.tril(AS)
D = array(6, B, N) * 0.1


def solve_triangular(a, b, **options):
    return lax.linalg.triangular_solve(a, b, **options)


CASES = [
    case("solve", lambda x: jnp.linalg.solve(A, x), X),
    case("solve for a product", lambda x: jnp.linalg.solve(A, M @ x), array(7, 3)),
    case("solve for columns", lambda x: jnp.linalg.solve(A, x), COLUMNS),
    case("solve a batch", lambda x: jnp.linalg.solve(AS, x[..., None])[..., 0], XS),
    case("solve with both", lambda a, x: jnp.linalg.solve(a, x), A, X),
    case("solve a batch with both", lambda a, x: jnp.linalg.solve(a, x[..., None])[..., 0], AS, XS),
    case("solve positive", lambda a, x: jsp.linalg.solve(a, x, assume_a="pos"), P, X),
    case("inverse", jnp.linalg.inv, A),
    case("inverses", jnp.linalg.inv, AS),
    case("determinant", jnp.linalg.det, A),
    case("slogdet", lambda a: jnp.linalg.slogdet(a)[1], AS),
    case("cholesky", jnp.linalg.cholesky, P),
    case("cho_solve", lambda x: jsp.linalg.cho_solve(jsp.linalg.cho_factor(P), x), X),
    case("triangular left", lambda b: solve_triangular(LOWER, b, left_side=True, lower=True), COLUMNS),
    case("triangular right", lambda b: solve_triangular(LOWER, b, lower=True), array(8, 6, N)),
    case("triangular batch", lambda b: solve_triangular(UPPER, b, left_side=True, lower=True, transpose_a=True), AS),
    case("triangular unit", lambda b: solve_triangular(UPPER, b, lower=True, unit_diagonal=True), AS),
    case("tridiagonal", lambda b: lax.linalg.tridiagonal_solve(D, 4 + D, D, b), array(9, B, N, 3)),
    case("tridiagonal with all", lambda d, b: lax.linalg.tridiagonal_solve(D[0], d, D[1], b), 4 + D[2], M),
    case("qr", lambda a: jnp.linalg.qr(a), A),
    case("eigenvalues", lambda a: jnp.linalg.eigh(a + a.T)[0], A),
    case("singular values", lambda a: jnp.linalg.svd(a, compute_uv=False), A),
    case("pseudoinverse", jnp.linalg.pinv, M),
]


@each(CASES)
def test_linalg(case):
    check(case)


def kept(f, x):
    with symjac.strict():
        _, jacobian = symjac.linearize(f, x)
    return jacobian


def test_batches_stay_apart():
    n, b = 8, 16
    matrices, xs = array(12, b, n, n) + 4 * jnp.eye(n)[None], array(13, b, n)
    for f in (
        lambda x: jnp.linalg.solve(matrices, x[..., None])[..., 0],
        lambda x: jnp.fft.irfft(jnp.fft.rfft(x), n),
        lambda x: jnp.linalg.solve(matrices[0], x.T).T,
    ):
        assert kept(f, xs).nse <= b * n * n


def test_solve_of_an_identity_is_one_inverse():
    n = 64
    matrix, x = array(14, n, n) + 10 * jnp.eye(n), array(15, n)
    ours = flops(symjac.jacfwd(lambda x: jnp.linalg.solve(matrix, x)), x)
    assert ours <= 1.1 * flops(jax.jacfwd(lambda x: jnp.linalg.solve(matrix, x)), x)


def test_solve_for_a_product_solves_for_its_columns():
    n, k, p = 16, 2, 64
    matrix = array(16, n, n) + 10 * jnp.eye(n)
    left, right, x = array(17, n, k), array(18, k, p), array(19, p)
    jaxpr = jax.make_jaxpr(symjac.jacfwd(lambda x: jnp.linalg.solve(matrix, left @ (right @ x))))(x)
    assert f"f32[{n},{k}] = triangular_solve" in str(jaxpr)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_columns_fill_the_axes_that_a_solver_keeps(k):
    """The gradient of a log-determinant is one solve of n right-hand sides, not n solves of n."""

    def f(x):
        matrix = x @ x.T + 4 * jnp.eye(8)
        return jnp.linalg.solve(matrix, x[:, :k] @ x[:k, :k])[0], jnp.linalg.slogdet(matrix)[1]

    x = array(20, 8, 8)
    ours, theirs = flops(symjac.jacrev(f), x), flops(jax.jacrev(f), x)
    assert ours <= 1.5 * theirs
    check_against_jax(f, x, transform="jacrev", rtol=1e-3)


def test_derivatives_of_a_solve_depend_on_the_matrix():
    def f(x):
        return jnp.linalg.solve(A + jnp.tanh(x)[:, None], x)

    ours, theirs = jax.jit(jax.jacfwd(symjac.jacfwd(f))), jax.jit(jax.jacfwd(jax.jacfwd(f)))
    assert_same(ours(X), theirs(X), "second derivative", rtol=1e-4)


@pytest.mark.fallback
def test_iterative_solver():
    check_against_jax(lambda b: jsp.sparse.linalg.cg(lambda v: P @ v, b, tol=1e-10)[0], X, rtol=1e-3)
