"""Products and cumulative sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from helpers import array
from jax import lax
from rule_cases import case, check, each

X, M, B = array(0, 5), array(1, 3, 4), array(2, 2, 3, 4)
A, C = array(3, 4, 5), array(4, 2, 4, 3)


def general(x, y, contracting, batch=((), ()), **options):
    return lax.dot_general(x, y, (contracting, batch), **options)


CASES = [
    case("matrix vector", lambda x: A @ x, X),
    case("vector matrix", lambda x: x @ A.T, X),
    case("both sides", lambda x, y: x @ y, M, A),
    case("quadratic", lambda x: x @ (A.T @ A) @ x, X),
    case("inner", jnp.dot, X, X * 2),
    case("outer", lambda x, y: general(jnp.sin(x), y, ((), ())), X, M),
    case("batch", lambda x, y: general(x, y, ((2,), (1,)), ((0,), (0,))), B, C),
    case("two contracted", lambda x, y: general(jnp.sin(x), y, ((1, 2), (2, 1)), ((0,), (0,))), B, C),
    case("batch alone", lambda x, y: general(x, y, ((), ()), ((0,), (1,))), array(5, 3, 2), array(6, 4, 3)),
    case("of none", lambda x: x @ jnp.ones((0, 3)), array(7, 2, 0)),
    case("with none", lambda x: jnp.ones((0, 5)) @ x, X),
    case("size one", lambda x, y: x @ y, array(8, 3, 1), array(9, 1, 2)),
    case("diagonal of a product", lambda x: jnp.einsum("ii,ij->j", x, x), array(10, 3, 3)),
    case("einsum of three", lambda x, y, z: jnp.einsum("ij,jk,kl->li", x, y, z), M, A, array(11, 5, 2)),
    case("of a slice", lambda x: A[:, :3] @ x[1:4], X),
    case("of a pad", lambda x: A @ jnp.pad(x[:2], (1, 2)), X),
    case("of a broadcast", lambda x: A @ jnp.broadcast_to(x[:1], (5,)), X),
    case("of a merge", lambda x: array(12, 3, 12) @ jnp.sin(x).reshape(-1), M),
    case("of a gather", lambda x, i: A @ x[i], X, jnp.array([3, 1, 1, 0, 4])),
    case("of a scatter", lambda x, i: A @ jnp.zeros(5).at[i].add(x), X, jnp.array([3, 1, 1, 0, 4])),
    case(
        "float16 to float32",
        lambda x: general(x, x, ((0,), (0,)), preferred_element_type=jnp.float32),
        X.astype(jnp.float16),
    ),
    case("highest precision", lambda x: jnp.dot(A, jnp.sin(x), precision="highest"), X),
    case("vmap", lambda x: jax.vmap(lambda row: A.T @ jnp.tanh(row))(x), M),
    case("cumsum", jnp.cumsum, X),
    case("cumsum of rows", lambda x: jnp.cumsum(jnp.sin(x), axis=1), M),
    case("cumsum backwards", lambda x: lax.cumsum(x, 0, reverse=True), M),
    case("cumsum of none", lambda x: jnp.cumsum(x, axis=0), array(13, 0, 2)),
    case("cumprod", jnp.cumprod, X),
    case("cummax", lambda x: lax.cummax(x, 0), X),
    case("cummin of columns", lambda x: lax.cummin(x, 1, reverse=True), M),
    case("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 0), X),
]


@each(CASES)
def test_contraction(case):
    check(case)
