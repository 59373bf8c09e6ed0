"""Linear maps, networks and attention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .case import Case, block_diagonal, diagonal, normal, weight


def linear(n: int) -> Case:
    """``A @ x``."""
    return Case(lambda x, a: a @ x, (normal(0, n), normal(1, n, n)), lambda x, a: a)


def chain(n: int) -> Case:
    """Three matrices, wide, narrow, wide."""
    sizes = (n, 2 * n, n // 8, n)
    matrices = tuple(weight(i, b, a) for i, (a, b) in enumerate(itertools.pairwise(sizes)))
    return Case(lambda x, a, b, c: c @ (b @ (a @ x)), (normal(5, n), *matrices), lambda x, a, b, c: c @ (b @ a))


def elementwise(n: int) -> Case:
    """A smooth function of each element."""
    return Case(
        lambda x: jnp.sin(x) * jnp.exp(-(x**2)),
        (normal(0, n),),
        lambda x: diagonal(jnp.exp(-(x**2)) * (jnp.cos(x) - 2 * x * jnp.sin(x))),
    )


def _mlp(x: Array, *layers: Array) -> Array:
    for matrix in layers[:-1]:
        x = jnp.tanh(matrix @ x)
    return layers[-1] @ x


def _slopes(x: Array, layers: Sequence[Array]) -> list[Array]:
    slopes = []
    for matrix in layers[:-1]:
        x = jnp.tanh(matrix @ x)
        slopes.append(1 - x**2)
    return slopes


def _mlp_from(start: int):
    """The Jacobian of an MLP, accumulated outwards from the layer `start`."""

    def jacobian(x: Array, *layers: Array) -> Array:
        slopes = _slopes(x, layers)
        right = layers[start]
        for i in range(start, 0, -1):
            right = (right * slopes[i - 1]) @ layers[i - 1]
        if start == len(layers) - 1:
            return right
        left = layers[-1]
        for i in range(len(layers) - 1, start + 1, -1):
            left = (left * slopes[i - 1]) @ layers[i - 1]
        return left @ (slopes[start][:, None] * right)

    return jacobian


def _mlp_case(sizes: Sequence[int], start: int) -> Case:
    layers = tuple(weight(i, b, a) for i, (a, b) in enumerate(itertools.pairwise(sizes)))
    return Case(_mlp, (normal(9, sizes[0]), *layers), _mlp_from(start))


def mlp_square(n: int) -> Case:
    """Four layers of the same width."""
    return _mlp_case((n, n, n, n, n), 3)


def mlp_narrow(n: int) -> Case:
    """Many inputs, ten outputs."""
    return _mlp_case((n, n, n, 10), 2)


def mlp_hourglass(n: int) -> Case:
    """An encoder and a decoder: the cheapest order starts at the neck."""
    return _mlp_case((n, 2 * n, n // 16, 2 * n, n), 1)


def residual_mlp(n: int) -> Case:
    """Four residual blocks."""
    args = (normal(8, n), *(weight(i, n, n) for i in range(8)))

    def apply(x: Array, *layers: Array) -> Array:
        for first, second in zip(layers[::2], layers[1::2], strict=True):
            x = x + second @ jnp.tanh(first @ x)
        return x

    def jacobian(x: Array, *layers: Array) -> Array:
        total = jnp.eye(x.shape[0])
        for k, (first, second) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            inner = jnp.tanh(first @ x)
            step = (second * (1 - inner**2)) @ first
            total = step + jnp.eye(x.shape[0]) if k == 0 else total + step @ total
            x = x + second @ inner
        return total

    return Case(apply, args, jacobian)


def batched_mlp(n: int) -> Case:
    """A layer of 16 units on each of n rows."""

    def jacobian(x: Array, first: Array, second: Array) -> Array:
        slope = 1 - jnp.tanh(x @ first) ** 2
        return block_diagonal(jnp.einsum("bh,ih,ho->boi", slope, first, second))

    args = (normal(0, n, 16), weight(1, 16, 16), weight(2, 16, 16))
    return Case(lambda x, first, second: jnp.tanh(x @ first) @ second, args, jacobian)


def softmax_batch(n: int) -> Case:
    """Softmax of each of n rows of 32."""

    def jacobian(x: Array) -> Array:
        p = jax.nn.softmax(x)
        return block_diagonal(p[:, :, None] * (jnp.eye(32)[None] - p[:, None, :]))

    return Case(jax.nn.softmax, (normal(0, n, 32),), jacobian)


def layer_norm(n: int) -> Case:
    """Layer norm of each of n rows of 32."""

    def apply(x: Array) -> Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)

    def jacobian(x: Array) -> Array:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        scale = 1 / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
        y = centred * scale
        block = jnp.eye(32)[None] - 1 / 32 - y[:, :, None] * y[:, None, :] / 32
        return block_diagonal(scale[:, :, None] * block)

    return Case(apply, (normal(0, n, 32),), jacobian)


def attention(n: int) -> Case:
    """One head of width 16 on n tokens."""

    def apply(x: Array, query: Array, key: Array, value: Array) -> Array:
        scores = (x @ query) @ (x @ key).T / x.shape[-1] ** 0.5
        return jax.nn.softmax(scores) @ (x @ value)

    def jacobian(x: Array, query: Array, key: Array, value: Array) -> Array:
        scale = x.shape[-1] ** -0.5
        queries, keys, values = x @ query, x @ key, x @ value
        weights = jax.nn.softmax(queries @ keys.T * scale)
        by_score = scale * weights[:, :, None] * (values[None] - (weights @ values)[:, None])
        through_value = weights[:, None, :, None] * value.T[None, :, None, :]
        through_key = by_score.transpose(0, 2, 1)[:, :, :, None] * (queries @ key.T)[:, None, None, :]
        through_query = jnp.einsum("ika,kb->iab", by_score, keys @ query.T)
        index = np.arange(x.shape[0])
        return (through_value + through_key).at[index, :, index, :].add(through_query)

    return Case(apply, (normal(0, n, 16), *(weight(i, 16, 16) for i in (1, 2, 3))), jacobian)


def conv(n: int) -> Case:
    """A convolution of n positions, 4 channels to 4, kernel 3, zero padding, with respect to its input."""

    def apply(x: Array, kernel: Array) -> Array:
        return jnp.tanh(lax.conv_general_dilated(x[None], kernel, (1,), "SAME")[0])

    def jacobian(x: Array, kernel: Array) -> Array:
        slope = 1 - apply(x, kernel) ** 2
        blocks = jnp.zeros((4, n, 4, n))
        for k in range(3):
            rows = np.arange(max(0, 1 - k), min(n, n + 1 - k))
            values = slope[:, rows, None] * kernel[:, None, :, k]
            blocks = blocks.at[:, rows, :, rows + k - 1].set(values.transpose(1, 0, 2))
        return blocks

    return Case(apply, (normal(0, 4, n), normal(1, 4, 4, 3) / 3), jacobian)


def conv_kernel(n: int) -> Case:
    """A convolution of n positions with respect to its kernel of 4 x 4 x 5."""

    def apply(kernel: Array, x: Array) -> Array:
        return lax.conv_general_dilated(x[None], kernel, (1,), "VALID")[0]

    def jacobian(kernel: Array, x: Array) -> Array:
        patches = jnp.stack([x[:, k : k + n - 4] for k in range(5)], axis=-1)  # (in, position, tap)
        index = np.arange(4)
        spread = jnp.zeros((4, n - 4, 4, 4, 5)).at[index, :, index].set(patches.transpose(1, 0, 2)[None])
        return spread

    return Case(apply, (normal(1, 4, 4, 5), normal(0, 4, n)), jacobian)


def mlp_parameters(n: int) -> Case:
    """A batch of 16 with respect to the first weights of an MLP of n hidden units, as for a natural gradient."""

    def apply(first: Array, second: Array, x: Array) -> Array:
        return jnp.tanh(x @ first) @ second

    def jacobian(first: Array, second: Array, x: Array) -> Array:
        by_hidden = (1 - jnp.tanh(x @ first) ** 2)[:, None, :] * second.T[None]
        return by_hidden[:, :, None, :] * x[:, None, :, None]

    return Case(apply, (weight(0, 8, n), weight(1, n, 4), normal(2, 16, 8)), jacobian)


def pinn_hessian(n: int) -> Case:
    """The Hessian with respect to the three coordinates of a small network of n hidden units."""

    def apply(x: Array, first: Array, second: Array, last: Array) -> Array:
        return last @ jnp.tanh(second @ jnp.tanh(first @ x))

    def hessian(x: Array, first: Array, second: Array, last: Array) -> Array:
        inner = jnp.tanh(first @ x)
        outer = jnp.tanh(second @ inner)
        slope, by_inner = 1 - inner**2, 1 - outer**2
        jacobian = (second * slope) @ first
        curve = last * (-2 * outer * by_inner)
        through = (last * by_inner) @ second * (-2 * inner * slope)
        return (jacobian.T * curve) @ jacobian + (first.T * through) @ first

    return Case(apply, (normal(0, 3), weight(1, n, 3), weight(2, n, n), weight(3, 1, n)[0]), hessian)
