"""The diagonal of a Hessian and its trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array

import symjac
from benchmarks import laplacian

W, V = array(1, 5, 4), array(2, 5)


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


CASES = {
    "separable": lambda x: jnp.sum(jnp.sin(x) * x),
    "chain": rosenbrock,
    "quadratic": lambda x: x @ (W.T @ W) @ x,
    "network": lambda x: V @ jnp.tanh(W @ x),
    "linear": lambda x: jnp.sum(3 * x),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("under", [lambda f: f, jax.jit])
def test_equals_the_diagonal_of_jaxs_hessian(name, under):
    f, x = CASES[name], array(3, 4)
    hessian = jax.hessian(f)(x)
    np.testing.assert_allclose(under(symjac.hessian_diagonal(f))(x), jnp.diagonal(hessian), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(under(symjac.laplacian(f))(x), jnp.trace(hessian), rtol=1e-4, atol=1e-4)


def test_a_tree_and_several_arguments():
    def f(p, k, y):
        return jnp.sum(p["a"] ** 3) * k + jnp.sum(p["b"] * p["b"]) * y**2

    p, y = {"a": array(4, 2, 3), "b": array(5)}, array(6)
    diagonal = symjac.hessian_diagonal(f, argnums=(0, 2))(p, 2.0, y)
    assert jax.tree.structure(diagonal) == jax.tree.structure((p, y))
    np.testing.assert_allclose(diagonal[0]["a"], 12 * p["a"], rtol=1e-5)
    np.testing.assert_allclose(diagonal[0]["b"], 2 * y**2, rtol=1e-5)
    np.testing.assert_allclose(diagonal[1], 2 * p["b"] ** 2, rtol=1e-5)
    np.testing.assert_allclose(symjac.laplacian(f)(p, 2.0, y), 12 * jnp.sum(p["a"]) + 2 * y**2, rtol=1e-5)


def test_a_million_unknowns():
    x = jnp.linspace(-1.0, 1.0, 10**6)
    second = symjac.hessian_diagonal(rosenbrock)(x)
    inner = 1200 * x[1:-1] ** 2 - 400 * x[2:] + 202
    np.testing.assert_allclose(second[1:-1], inner, rtol=1e-4, atol=1e-2)


def test_the_same_function_gives_the_same_object():
    assert symjac.laplacian(rosenbrock) is symjac.laplacian(rosenbrock)


@pytest.mark.parametrize("transform", [symjac.hessian_diagonal, symjac.laplacian])
def test_errors(transform):
    with pytest.raises(TypeError, match="callable"):
        transform(3)
    with pytest.raises(TypeError):
        transform(rosenbrock, argnums=1.5)
    with pytest.raises(TypeError, match="scalar"):
        transform(jnp.sin)(array(7, 3))
    with pytest.raises(ValueError, match="argnums"):
        transform(rosenbrock, argnums=1)(array(7, 3))


@pytest.mark.parametrize("f", [laplacian.mlp, laplacian.particles])
def test_the_ways_of_the_benchmark_agree(f):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # Not ours only are asked.
        results = [way(jnp.linspace(-1.0, 1.0, 6)) for way in laplacian.contenders(f).values()]
    np.testing.assert_allclose(results, results[0], rtol=1e-4)
