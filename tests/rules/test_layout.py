"""Rules that move entries about."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from helpers import array
from jax import lax
from rule_cases import case, check, each

X, M, T = array(0, 5), array(1, 3, 4), array(2, 2, 3, 4)
ONE, NONE, EMPTY = array(3, 1, 4), array(4, 0, 4), array(5, 3, 0)


def padded(x, *config):
    return lax.pad(x, jnp.zeros((), x.dtype), config)


CASES = [
    case("broadcast in dim", lambda x: lax.broadcast_in_dim(x, (4, 5, 2), (1,)), X),
    case("broadcast of size one", lambda x: jnp.broadcast_to(jnp.sin(x), (3, 4)), ONE),
    case("broadcast of none", lambda x: jnp.broadcast_to(x, (2, 0, 4)), NONE),
    case("reshape merges", lambda x: jnp.sin(x).reshape(-1), M),
    case("reshape splits", lambda x: jnp.sin(x.reshape(-1)).reshape(2, 3, 2), M),
    case("reshape moves borders", lambda x: (x**2).reshape(6, 4), T),
    case("reshape of none", lambda x: x.reshape(4, 0), NONE),
    case("reshape after a transpose", lambda x: (x.T * 2).reshape(-1), M),
    case("reshape of a slice", lambda x: x[1:, ::2].reshape(-1) * 2, M),
    case("reshape of a broadcast", lambda x: jnp.broadcast_to(x[:, None], (5, 2)).reshape(-1)[1:], X),
    case("reshape with dimensions", lambda x: lax.reshape(x, (12,), (1, 0)), M),
    case("squeeze", lambda x: jnp.squeeze(jnp.sin(x), 0), ONE),
    case("expand dims", lambda x: jnp.expand_dims(x, (0, 2)), X),
    case("transpose", lambda x: jnp.transpose(x, (2, 0, 1)) * 2, T),
    case("rev", lambda x: lax.rev(x, (0, 1)) * x, M),
    case("slice", lambda x: lax.slice(x, (1, 0), (3, 4)), M),
    case("slice with strides", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 2)), M),
    case("slice to none", lambda x: lax.slice(x, (1, 2), (1, 4)), M),
    case("slice of a reversed", lambda x: x[::-1][1:4:2], X),
    case("slices that do not meet", lambda x: padded(x[:2], (0, 3, 0))[3:] + x[:2], X),
    case("pad", lambda x: padded(x, (1, 2, 0), (0, 1, 0)), M),
    case("pad inside", lambda x: padded(x, (1, 0, 2), (0, 0, 1)), M),
    case("pad negative", lambda x: padded(x, (-1, 2, 0), (1, -2, 0)), M),
    case("pad negative inside", lambda x: padded(x, (-2, 1, 1)), X),
    case("pad by a tangent", lambda x: lax.pad(x[1:], x[0], ((2, 0, 1),)), X),
    case("pad of none", lambda x: padded(x, (1, 1, 0), (0, 0, 0)), NONE),
    case("pad of a slice of a merge", lambda x: padded((x[:, None] * jnp.ones((1, 2))).reshape(-1)[1:9], (2, 1, 0)), X),
    case("concatenate", lambda x: jnp.concatenate([x[3:], jnp.ones(2), jnp.sin(x), x[:0]]), X),
    case("concatenate columns", lambda x, y: jnp.concatenate([x, y**2, x], 1), M, array(6, 3, 1)),
    case("stack", lambda x: jnp.stack([x[1:4], jnp.ones(3), x[:3] ** 2], 1), X),
    case("unstack", lambda x: [row * i for i, row in enumerate(jnp.unstack(x, axis=1))], M),
    case("split", lambda x: [part * 2 for part in jnp.split(x, [1, 3], axis=1)], M),
    case("tile", lambda x: jnp.tile(x, (2, 3)), M),
    case("tile of a product", lambda x: jnp.tile(x * x[::-1], 2)[1:], X),
    case("repeat", lambda x: jnp.repeat(x, 2, axis=1, total_repeat_length=8), M),
    case("roll", lambda x: jnp.roll(x, 2) - jnp.roll(x, -1), X),
    case("reduce sum", lambda x: jnp.sum(jnp.sin(x), (0, 2)), T),
    case("reduce sum of none", lambda x: jnp.sum(x, 1), EMPTY),
    case("reduce sum of a broadcast", lambda x: jnp.sum(x[:, None] * jnp.ones((1, 3)), 1), X),
    case("reduce sum of a pad", lambda x: jnp.sum(padded(x, (1, 1, 0), (0, 2, 0)), 0), M),
    case("diagonal matrix", lambda x: jnp.diag(x), X),
    case("kron", lambda x, y: jnp.kron(x, y), M, array(7, 2, 2)),
    case("swap and stack", lambda x: jnp.stack([jnp.swapaxes(x, 0, 1)] * 2), M),
    case("pad with numpy integers", lambda x: padded(x, (np.int64(1), np.int64(0), np.int64(0))), X),
]


@each(CASES)
def test_layout(case):
    check(case)
