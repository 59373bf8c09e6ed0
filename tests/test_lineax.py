"""Linear operators whose kind and tags follow from the structure."""

import equinox as eqx
import gallery
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array
from jax.flatten_util import ravel_pytree

import symjac

lx = pytest.importorskip("lineax")
pytestmark = pytest.mark.filterwarnings("default")

X = array(1, 6)
WELL_CONDITIONED = array(2, 6, 6) + 6 * jnp.eye(6)


def implicit_heat(u):
    padded = jnp.pad(u, 1)
    return u - 0.4 * (padded[2:] - 2 * u + padded[:-2])


def periodic_heat(u):
    return u - 0.4 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))


def pair(p):
    return {"a": p["a"] ** 2 + 3 * p["a"], "b": 2 * p["b"] + p["a"].sum()}


OPERATORS = {
    "identity": (lambda x: x + 1, X, "IdentityLinearOperator"),
    "diagonal": (lambda x: jnp.sin(x) + 2 * x, X, "DiagonalLinearOperator"),
    "diagonal_tree": (lambda p: (p[0] * 2, -p[1]), (X, array(3, 2, 2)), "DiagonalLinearOperator"),
    "tridiagonal": (implicit_heat, X, "TridiagonalLinearOperator"),
    "dense": (lambda x: WELL_CONDITIONED @ x, X, "MatrixLinearOperator"),
    "periodic": (periodic_heat, X, "JacobianOperator"),
    "tree": (pair, {"a": X, "b": array(3, 2)}, "JacobianOperator"),
    "triangular": (lambda x: x.at[3:].add(jnp.cumsum(x)[:3]), X, "JacobianOperator"),
    "plane": (lambda x: x - 0.1 * gallery.heat_plane(x), array(4, 3, 4), "JacobianOperator"),
    "tall": (jnp.diff, X, "JacobianOperator"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    function, x, kind = OPERATORS[name]
    value, jacobian = symjac.linearize(function, x)
    operator = jacobian.to_lineax()
    assert type(operator).__name__ == kind
    matrix = np.asarray(jacobian.as_matrix())
    close = np.testing.assert_allclose
    close(operator.as_matrix(), matrix, rtol=1e-5)
    close(operator.T.as_matrix(), matrix.T, rtol=1e-5)
    vector = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), x)
    close(ravel_pytree(operator.mv(vector))[0], matrix @ ravel_pytree(vector)[0], rtol=1e-4, atol=1e-4)
    assert jax.tree.structure(operator.out_structure()) == jax.tree.structure(value)
    check_answers(operator, matrix)
    for same in (lx.linearise(operator), lx.materialise(operator), lx.conj(operator)):
        close(same.as_matrix(), matrix, rtol=1e-5)
    if matrix.shape[0] == matrix.shape[1]:
        check_solutions(operator, matrix, vector)


def check_answers(operator, matrix):
    """No answer may be wrong; which ones have to be right is tested by the operators' kinds."""
    n = len(matrix)
    assert not lx.is_diagonal(operator) or (matrix == np.diag(np.diag(matrix))).all()
    assert not lx.is_lower_triangular(operator) or (matrix == np.tril(matrix)).all()
    assert not lx.is_upper_triangular(operator) or (matrix == np.triu(matrix)).all()
    assert not lx.is_symmetric(operator) or (matrix == matrix.T).all()
    assert not lx.has_unit_diagonal(operator) or (np.diag(matrix) == 1).all()
    assert not lx.is_negative_semidefinite(operator)
    assert not lx.is_positive_semidefinite(operator) or (matrix == np.eye(n)).all()
    if lx.is_tridiagonal(operator):
        for found, k in zip(lx.tridiagonal(operator), (0, -1, 1), strict=True):
            np.testing.assert_allclose(found, np.diag(matrix, k), rtol=1e-5)
    if matrix.shape[0] == matrix.shape[1]:
        np.testing.assert_allclose(ravel_pytree(lx.diagonal(operator))[0], np.diag(matrix), rtol=1e-5)


def check_solutions(operator, matrix, vector):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        solved = eqx.filter_jit(lambda operator, b: lx.linear_solve(operator, b).value)(operator, vector)
    want = np.linalg.solve(matrix.astype(np.float64), np.asarray(ravel_pytree(vector)[0], np.float64))
    np.testing.assert_allclose(ravel_pytree(solved)[0], want, rtol=1e-3, atol=1e-4)


def test_three_diagonals_of_an_operator_on_trees():
    def function(p):
        return {"a": implicit_heat(p["a"])}

    _, jacobian = symjac.linearize(function, {"a": X})
    operator = jacobian.to_lineax()
    assert lx.is_tridiagonal(operator) and type(operator).__name__ == "JacobianOperator"
    for found, k in zip(lx.tridiagonal(operator), (0, -1, 1), strict=True):
        np.testing.assert_allclose(found, np.diag(jacobian.as_matrix(), k), rtol=1e-5)


def test_an_implicit_heat_step_of_many_unknowns():
    u = jnp.sin(jnp.linspace(0.0, 3.0, 10**5))
    _, jacobian = symjac.linearize(implicit_heat, u)
    operator = jacobian.to_lineax()
    assert isinstance(lx.AutoLinearSolver(well_posed=True).select_solver(operator), lx.Tridiagonal)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        solved = lx.linear_solve(operator, u).value
    np.testing.assert_allclose(jacobian(solved), u, atol=1e-5)


def test_integers_have_no_operator():
    _, jacobian = symjac.linearize(lambda x, i: x * 2, X, 1)
    with pytest.raises(TypeError, match="int32"):
        jacobian.to_lineax()
