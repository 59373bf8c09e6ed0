"""Small programs of the kinds that people differentiate, with asymmetric shapes. None may fall back to dense."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import array, positive
from jax import Array, lax


@dataclass(frozen=True)
class Case:
    """A program, the point at which it is differentiated, and with respect to which arguments."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: int | tuple[int, ...] = 0
    options: dict[str, Any] = field(default_factory=dict)


X = array(0, 5)  # a vector
M = array(1, 3, 4)  # a matrix
A = array(2, 4, 5)
INDEX = np.array([2, 0, 2, 1])


def affine(seed: int, n_in: int, n_out: int) -> tuple[Array, Array]:
    return array(seed, n_out, n_in) / n_in**0.5, array(seed + 1, n_out)


def mlp(*sizes: int) -> Callable[[Array], Array]:
    layers = [affine(10 + 2 * i, *pair) for i, pair in enumerate(itertools.pairwise(sizes))]

    def apply(x: Array) -> Array:
        for weight, bias in layers[:-1]:
            x = jnp.tanh(weight @ x + bias)
        weight, bias = layers[-1]
        return weight @ x + bias

    return apply


def batched_mlp(first: Array, second: Array, x: Array) -> Array:
    return jnp.tanh(x @ first) @ second


def layer_norm(x: Array) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def attention(weights: tuple[Array, Array, Array], x: Array) -> Array:
    query, key, value = (x @ weight for weight in weights)
    return jax.nn.softmax(query @ key.T / x.shape[-1] ** 0.5) @ value


def heat_roll(u: Array) -> Array:
    return 0.3 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))


def heat_slices(u: Array) -> Array:
    return 0.3 * (u[2:] - 2 * u[1:-1] + u[:-2])


def heat_pad(u: Array) -> Array:
    padded = jnp.pad(u, 1)
    return 0.3 * (padded[2:] - 2 * u + padded[:-2])


def heat_plane(u: Array) -> Array:
    return sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1)) - 4 * u


def advection_roll(u: Array) -> Array:
    return -u * (u - jnp.roll(u, 1))


def advection_slices(u: Array) -> Array:
    return -u[1:] * (u[1:] - u[:-1])


def advection_pad(u: Array) -> Array:
    return -u * (u - jnp.pad(u, (1, 0))[:-1])


def brusselator_with(laplacian: Callable[[Array], Array], core: slice) -> Callable[[Array], Array]:
    def rhs(state: Array) -> Array:
        u, v = state[0], state[1]
        growth = (u**2 * v)[core]
        du = 1.0 + growth - 4.4 * u[core] + laplacian(u)
        return jnp.stack([du, 3.4 * u[core] - growth + laplacian(v)])

    return rhs


def convolve(x: Array, kernel: Array, **options: Any) -> Array:
    n_space = x.ndim - 2
    return lax.conv_general_dilated(x, kernel, (1,) * n_space, "SAME", **options)


def pool(x: Array) -> Array:
    return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2), (1, 2, 2), "VALID") / 4


def separable(x: Array) -> Array:
    return jnp.sum(jnp.sin(x) * x**2)


def banded(x: Array) -> Array:
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def dense(x: Array) -> Array:
    return jax.nn.logsumexp(A @ x)


ELEMENTWISE = [
    Case("sin", jnp.sin, (X,)),
    Case("product_with_itself", lambda x: x * x, (M,)),
    Case("cube", lambda x: x**3, (X,)),
    Case("relu", jax.nn.relu, (M,)),
    Case("gelu", jax.nn.gelu, (X,)),
    Case("softplus", jax.nn.softplus, (X,)),
    Case("where", lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), -x), (X,)),
    Case("where_guards_inf", lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0), (jnp.array([0.0, 1.0, 4.0]),)),
    Case("clip", lambda x: jnp.clip(x, -0.5, 0.5), (M,)),
    Case("abs", jnp.abs, (X,)),
    Case("affine_elementwise", lambda x, a: (2 - a * x) / 3, (X, array(3, 5))),
    Case("quotient_of_two_arguments", lambda x, y: x / y, (M, positive(4, 3, 4)), (0, 1)),
    Case("broadcast_row", lambda x, y: x + y[None, :] * x, (M, array(5, 4)), (0, 1)),
]

NETWORKS = [
    *(Case(f"mlp_{n}_layers", mlp(*(5, 7, 6, 4, 8, 3, 2)[:n], 4), (X,)) for n in range(2, 7)),
    Case("mlp_wrt_weights", lambda w, x: jnp.tanh(w @ x), (A, X)),
    Case("mlp_wrt_tree", lambda p, x: p["w"] @ jnp.tanh(x) + p["b"], ({"w": A, "b": array(6, 4)}, X)),
    Case("batched_mlp", lambda x: batched_mlp(array(7, 4, 6), array(8, 6, 2), x), (M,)),
    Case("batched_mlp_wrt_weights", lambda w, x: batched_mlp(w, array(8, 6, 2), x), (array(7, 4, 6), M)),
    Case("residual_mlp", lambda x: x + mlp(5, 7, 5)(x), (X,)),
    Case("attention", lambda x: attention((array(9, 4, 4), array(10, 4, 4), array(11, 4, 4)), x), (M,)),
    Case("layer_norm", layer_norm, (X,)),
    Case("layer_norm_rows", layer_norm, (M,)),
]

REDUCTIONS = [
    Case("softmax", jax.nn.softmax, (X,)),
    Case("softmax_rows", jax.nn.softmax, (M,)),
    Case("softmax_columns", lambda x: jax.nn.softmax(x, axis=0), (M,)),
    Case("log_softmax", jax.nn.log_softmax, (X,)),
    Case("logsumexp", jax.nn.logsumexp, (X,)),
    Case("logsumexp_rows", lambda x: jax.nn.logsumexp(x, axis=1), (M,)),
    Case("over_its_norm", lambda x: x / jnp.linalg.norm(x), (X,)),
    Case("max", jnp.max, (X,)),
    Case("max_columns", lambda x: jnp.max(x, axis=0), (M,)),
    Case("max_with_ties", jnp.max, (jnp.array([1.0, 3.0, 3.0, 2.0]),)),
    Case("min", jnp.min, (X,)),
    Case("sort", jnp.sort, (X,)),
    Case("sort_rows", lambda x: jnp.sort(x, axis=1), (M,)),
    Case("prod", jnp.prod, (X,)),
    Case("prod_columns", lambda x: jnp.prod(x, axis=0), (M,)),
    Case("var", jnp.var, (X,)),
    Case("cumsum", jnp.cumsum, (X,)),
    Case("cumsum_columns", lambda x: jnp.cumsum(x, axis=0), (M,)),
    Case("mean_over_rows", lambda x: jnp.mean(x, axis=0), (M,)),
    Case("sum_of_all", jnp.sum, (M,)),
]

PRODUCTS = [
    Case("matrix_vector", lambda x: A @ x, (X,)),
    Case("vector_matrix", lambda x: x @ A, (array(12, 4),)),
    Case("quadratic_form", lambda x: x.T @ array(13, 5, 5) @ x, (X,)),
    Case("gram", lambda x: x @ x.T, (M,)),
    Case("outer", lambda x: jnp.outer(x, x), (X,)),
    Case("outer_of_two", jnp.outer, (X, array(14, 3)), (0, 1)),
    Case(
        "einsum_of_three",
        lambda x, y, z: jnp.einsum("ij,jk,kl->il", x, y, z),
        (M, array(15, 4, 2), array(16, 2, 5)),
        (0, 1, 2),
    ),
    Case(
        "einsum_batched",
        lambda x, y: jnp.einsum("bij,bjk->bki", x, y),
        (array(17, 2, 3, 4), array(18, 2, 4, 5)),
        (0, 1),
    ),
    Case("einsum_trace", lambda x: jnp.einsum("ii,ij->j", x, x), (array(19, 4, 4),)),
]

STENCILS = [
    Case("heat_roll", heat_roll, (array(20, 7),)),
    Case("heat_slices", heat_slices, (array(20, 7),)),
    Case("heat_pad", heat_pad, (array(20, 7),)),
    Case("heat_plane", heat_plane, (array(21, 4, 5),)),
    Case("advection_roll", advection_roll, (array(20, 7),)),
    Case("advection_slices", advection_slices, (array(20, 7),)),
    Case("advection_pad", advection_pad, (array(20, 7),)),
    Case("brusselator_roll", brusselator_with(heat_roll, slice(None)), (array(22, 2, 6),)),
    Case("brusselator_slices", brusselator_with(heat_slices, slice(1, -1)), (array(22, 2, 6),)),
    Case("brusselator_pad", brusselator_with(heat_pad, slice(None)), (array(22, 2, 6),)),
    Case("diff", jnp.diff, (X,)),
    Case("diff_second", lambda x: jnp.diff(x, n=2, axis=0), (array(23, 4, 3),)),
    Case("concatenate", lambda x: jnp.concatenate([x[3:], jnp.sin(x[:2]), x]), (X,)),
    Case("stack", lambda x: jnp.stack([x[1:4], x[:3] ** 2, jnp.zeros(3)], axis=1), (X,)),
]

INDEXING = [
    Case("one_hot_lookup", lambda table, i: jax.nn.one_hot(i, 3) @ table, (M, INDEX)),
    Case("gather_static", lambda x: x[INDEX], (M,)),
    Case("gather_traced", lambda x, i: x[i], (M, INDEX)),
    Case("gather_traced_columns", lambda x, i: x[:, i], (M, INDEX)),
    Case("gather_traced_pairs", lambda x, i, j: x[i, j], (M, INDEX, np.array([3, 1, 0, 0]))),
    Case("gather_one_row", lambda x, i: x[i], (M, np.int32(1))),
    Case("take", lambda x, i: jnp.take(x, i, axis=0), (M, INDEX)),
    Case("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, axis=1), (M, np.array([[1], [3], [0]]))),
    Case("scatter_set", lambda x, i: jnp.ones((6, 4)).at[i].set(x), (M, np.array([4, 0, 2]))),
    Case("scatter_add", lambda x, i: jnp.zeros((3, 4)).at[i].add(x), (array(24, 4, 4), INDEX)),
    Case("scatter_mul", lambda x, i: x.at[i].mul(2.0), (M, np.array([2, 0]))),
    Case("scatter_into", lambda x, i: x.at[i].set(0.0), (X, np.array([3, 1]))),
]

IMAGES = [
    Case("convolution_1d", lambda x: convolve(x, array(25, 3, 2, 3)), (array(26, 1, 2, 6),)),
    Case("convolution_1d_wrt_kernel", lambda k: convolve(array(26, 1, 2, 6), k), (array(25, 3, 2, 3),)),
    Case("convolution_2d", lambda x: convolve(x, array(27, 2, 1, 3, 2)), (array(28, 1, 1, 4, 5),)),
    Case("convolution_2d_wrt_kernel", lambda k: convolve(array(28, 1, 1, 4, 5), k), (array(27, 2, 1, 3, 2),)),
    Case("average_pooling", pool, (array(29, 2, 4, 6),)),
]

GRADIENTS = [
    Case("gradient_of_separable", jax.grad(separable), (X,)),
    Case("gradient_of_banded", jax.grad(banded), (array(30, 6),)),
    Case("gradient_of_dense", jax.grad(dense), (X,)),
]

CASES = [*ELEMENTWISE, *NETWORKS, *REDUCTIONS, *PRODUCTS, *STENCILS, *INDEXING, *IMAGES, *GRADIENTS]
