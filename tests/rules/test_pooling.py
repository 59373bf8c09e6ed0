"""Pooling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from helpers import array
from jax import lax
from rule_cases import case, check, each


def pool(x, window, strides, padding, op=lax.max, **options):
    start = {lax.max: -jnp.inf, lax.min: jnp.inf, lax.add: 0.0}[op]
    return lax.reduce_window(x, start, op, window, strides, padding, **options)


IMAGE = array(0, 4, 5)

CASES = [
    case("sum", lambda x: pool(x, (2, 2), (2, 2), "VALID", lax.add), IMAGE),
    case("sum of sines", lambda x: pool(jnp.sin(x), (2, 3), (1, 2), "SAME", lax.add), IMAGE),
    case("sum padded", lambda x: pool(x, (2, 3), (1, 2), ((1, 2), (0, 1)), lax.add), IMAGE),
    case("sum dilated", lambda x: pool(x, (2, 2), (1, 1), "VALID", lax.add, window_dilation=(1, 2)), IMAGE),
    case("sum of a dilated image", lambda x: pool(x, (2, 2), (1, 1), "VALID", lax.add, base_dilation=(2, 1)), IMAGE),
    case(
        "sum of a broadcast",
        lambda x: pool(jnp.broadcast_to(x[:, :1], x.shape), (2, 3), (1, 1), "SAME", lax.add),
        IMAGE,
    ),
    case(
        "sum of sums",
        lambda x: pool(pool(x, (1, 3), (1, 1), "SAME", lax.add) ** 2, (1, 3), (1, 1), "SAME", lax.add),
        IMAGE,
    ),
    case("max", lambda x: pool(x, (2, 2), (2, 2), "VALID"), IMAGE),
    case("max of sines", lambda x: pool(jnp.sin(x), (2, 3), (1, 2), "SAME"), IMAGE),
    case("max with ties", lambda x: pool(jnp.round(x) + 0 * x, (2, 2), (1, 1), "VALID"), IMAGE),
    case(
        "min dilated", lambda x: pool(x, (1, 2), (1, 1), "VALID", lax.min, window_dilation=(1, 2)), IMAGE, reverse=False
    ),
    case("min", lambda x: pool(x, (2, 2), (1, 2), "VALID", lax.min), IMAGE),
    case("max of a product", lambda x, w: pool(x @ w, (2, 1), (1, 1), "VALID"), IMAGE, array(14, 5, 3)),
    case("gradient of max", jax.grad(lambda x: jnp.sum(pool(x, (2, 2), (1, 2), "VALID") ** 2)), IMAGE),
]


@each(CASES)
def test_pooling(case):
    check(case)
