"""Milstein's method with an abstract product of diffusion and noise, as in `examples/milstein.py`."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import pytest
from helpers import array, assert_same, positive
from jax.flatten_util import ravel_pytree

import symjac

_PATH = pathlib.Path(__file__).parents[1] / "examples" / "milstein.py"
_SPEC = importlib.util.spec_from_file_location("milstein_example", _PATH)
milstein = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(milstein)

N, M = 5, 3
TABLE = array(0, N, M)
DT = jnp.asarray(0.01)
NOISES = {"common": jnp.asarray(0.3), "own": array(1, N), "factors": array(2, M)}


def mixed(y):
    return {"common": jnp.sin(y), "own": 0.5 * y, "factors": TABLE * y[:, None]}


KINDS = {
    "scalar": (milstein.scalar_prod, jnp.sin, NOISES["common"]),
    "diagonal": (milstein.diagonal_prod, jnp.sin, NOISES["own"]),
    "matrix": (milstein.matrix_prod, lambda y: TABLE * y[:, None], NOISES["factors"]),
    "mixed": (milstein.mixed_prod, mixed, NOISES),
}


def drift(y):
    return -y


def textbook(diffusion, prod, y, dw, ito):
    """The same step, from the formula, with dense matrices of JAX."""
    flat, unravel = ravel_pytree(dw)

    def matrix(y):
        return jax.jacfwd(lambda flat: prod(diffusion(y), unravel(flat)))(flat)

    products = jnp.outer(flat, flat) - (DT * jnp.eye(flat.size) if ito else 0)
    correction = jnp.einsum("ka,ibk,ab->i", matrix(y), jax.jacfwd(matrix)(y), products)
    return y + drift(y) * DT + matrix(y) @ flat + correction / 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ito", [True, False])
def test_a_step_is_that_of_the_textbook(kind, ito):
    prod, diffusion, dw = KINDS[kind]
    y = positive(3, N)
    got = jax.jit(lambda y, dw: milstein.milstein_step(drift, diffusion, prod, y, DT, dw, ito=ito))(y, dw)
    assert_same(got, jax.jit(lambda y, dw: textbook(diffusion, prod, y, dw, ito))(y, dw), kind, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bilinear_map_costs_no_more_than_its_size(kind):
    prod, diffusion, dw = KINDS[kind]
    g = diffusion(positive(3, N))
    result = symjac.jacfwd(lambda dw: prod(g, dw))(dw)
    assert_same(result, jax.jit(jax.jacfwd(lambda dw: prod(g, dw)))(dw), kind)
    size = sum(leaf.size for leaf in jax.tree.leaves(result))
    compiled = jax.jit(lambda g, dw: symjac.jacfwd(lambda dw: prod(g, dw))(dw)).lower(g, dw).compile()
    assert compiled.cost_analysis().get("flops", 0) <= 3 * size


def test_a_matrix_is_returned_as_it_is():
    assert symjac.jacfwd(lambda dw: milstein.matrix_prod(TABLE, dw))(NOISES["factors"]) is TABLE
    g = mixed(positive(3, N))
    assert symjac.jacfwd(lambda dw: milstein.mixed_prod(g, dw))(NOISES)["factors"] is g["factors"]


def test_many_steps():
    """Geometric Brownian motion, whose solution is known."""
    steps, dt = 2000, jnp.asarray(1 / 2000)
    noises = array(7, steps, N) * jnp.sqrt(dt)

    def step(y, dw):
        return milstein.milstein_step(drift, lambda y: y / 2, milstein.diagonal_prod, y, dt, dw), None

    got, _ = jax.jit(lambda y: jax.lax.scan(step, y, noises))(jnp.ones(N))
    want = jnp.exp(-1.125 + noises.sum(0) / 2)
    assert jnp.allclose(got, want, rtol=5e-3)
