"""Likelihoods, kernels and Hessians."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .case import Case, normal, positive


def mixture(n: int) -> Case:
    """The log-likelihood of each of n points under 8 Gaussians in 4 dimensions, with respect to the means."""

    def logits(means: Array, points: Array) -> Array:
        return -0.5 * jnp.sum((points[:, None] - means[None]) ** 2, axis=-1)

    def apply(means: Array, points: Array) -> Array:
        return jax.nn.logsumexp(logits(means, points), axis=1)

    def jacobian(means: Array, points: Array) -> Array:
        share = jax.nn.softmax(logits(means, points), axis=1)
        return share[:, :, None] * (points[:, None] - means[None])

    return Case(apply, (normal(0, 8, 4), normal(1, n, 4)), jacobian)


def kernel(n: int) -> Case:
    """A Gaussian-process kernel matrix between n points in 3 dimensions, with respect to the length scales."""

    def apply(scales: Array, points: Array) -> Array:
        difference = (points[:, None] - points[None]) / scales
        return jnp.exp(-0.5 * jnp.sum(difference**2, axis=-1))

    def jacobian(scales: Array, points: Array) -> Array:
        square = (points[:, None] - points[None]) ** 2
        value = jnp.exp(-0.5 * jnp.sum(square / scales**2, axis=-1))
        return value[:, :, None] * square / scales**3

    return Case(apply, (positive(0, 3), normal(1, n, 3)), jacobian)


def logistic_hessian(n: int) -> Case:
    """The Hessian of logistic regression with 4 n samples of n features."""

    def apply(w: Array, x: Array, y: Array) -> Array:
        z = x @ w
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z)

    def hessian(w: Array, x: Array, y: Array) -> Array:
        p = jax.nn.sigmoid(x @ w)
        return (x.T * (p * (1 - p) / x.shape[0])) @ x

    labels = (positive(2, 4 * n) > 1).astype(jnp.float32)
    return Case(apply, (0.1 * normal(0, n), normal(1, 4 * n, n), labels), hessian)


def poisson_hessian(n: int) -> Case:
    """The Hessian of a Poisson regression with 4 n samples of n features and a ridge penalty."""

    def apply(w: Array, x: Array, y: Array) -> Array:
        z = x @ w
        return jnp.sum(jnp.exp(z) - y * z) + 0.5 * jnp.sum(w**2)

    def hessian(w: Array, x: Array, y: Array) -> Array:
        index = np.arange(w.shape[0])
        return ((x.T * jnp.exp(x @ w)) @ x).at[index, index].add(1.0)

    return Case(apply, (0.1 * normal(0, n), normal(1, 4 * n, n) / n**0.5, positive(2, 4 * n)), hessian)


def rosenbrock_hessian(n: int) -> Case:
    """The Hessian of Rosenbrock's function of n variables."""

    def apply(x: Array) -> Array:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    def hessian(x: Array) -> Array:
        index = np.arange(n)
        main = jnp.zeros(n).at[:-1].set(1200 * x[:-1] ** 2 - 400 * x[1:] + 2).at[1:].add(200.0)
        matrix = jnp.zeros((n, n)).at[index, index].set(main)
        matrix = matrix.at[index[:-1], index[1:]].set(-400 * x[:-1])
        return matrix.at[index[1:], index[:-1]].set(-400 * x[:-1])

    return Case(apply, (normal(0, n),), hessian)


def quadratic_hessian(n: int) -> Case:
    """The Hessian of a quadratic form."""
    return Case(lambda x, a: x @ a @ x, (normal(0, n), normal(1, n, n)), lambda x, a: a + a.T)
