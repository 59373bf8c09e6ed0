"""Calls are entered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from helpers import array
from jax import lax
from rule_cases import case, check, each

X, A = array(0, 4), array(1, 3, 4)


@jax.custom_jvp
def cube(x):
    return x**3


cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))

CASES = [
    case("jit", jax.jit(lambda x: jnp.sin(A @ x)), X),
    case("jit in jit", jax.jit(lambda x: jax.jit(jnp.sin)(x) * jax.jit(jnp.cos)(x)), X),
    case("remat", jax.checkpoint(lambda x: jnp.tanh(A @ x)), X),
    case("remat of jit", jax.checkpoint(jax.jit(lambda x: jnp.sin(x) * x)), X),
    case("custom jvp", cube, X),
    case("custom jvp in jit", jax.jit(lambda x: cube(A @ x)), X),
    case("scan", lambda x: lax.scan(lambda c, w: (jnp.sin(c) * w, c), x, jnp.arange(3.0)), X),
    case("cond", lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), X),
    case("switch", lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, lambda x: x], x), X, jnp.array(1)),
    case(
        "while",
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * x), (0, x))[1],
        X,
        reverse=False,
    ),
]


@each(CASES)
def test_control_flow(case):
    check(case)
