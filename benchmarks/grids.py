"""Right-hand sides on grids."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from .case import Case, normal, positive, stencil


def _offsets(rank: int) -> list[tuple[int, ...]]:
    units = np.eye(rank, dtype=int)
    return [tuple(int(v) for v in sign * unit) for unit in units for sign in (1, -1)]


def _laplacian(u: Array) -> Array:
    total = -2 * u.ndim * u
    for axis in range(u.ndim):
        total = total + jnp.roll(u, 1, axis) + jnp.roll(u, -1, axis)
    return total


def _heat(shape: tuple[int, ...]) -> Case:
    def jacobian(u: Array) -> Array:
        centre = ((0,) * u.ndim, jnp.asarray(-2.0 * u.ndim))
        return stencil([centre, *((offset, jnp.asarray(1.0)) for offset in _offsets(u.ndim))], u.shape)

    return Case(_laplacian, (normal(0, *shape),), jacobian)


def heat(n: int) -> Case:
    """The heat equation on a circle of n points."""
    return _heat((n,))


def heat_square(n: int) -> Case:
    """The heat equation on a torus of n x n points."""
    return _heat((n, n))


def heat_cube(n: int) -> Case:
    """The heat equation on n x n x n points."""
    return _heat((n, n, n))


def burgers(n: int) -> Case:
    """Burgers' equation on n points, with walls."""

    def apply(u: Array) -> Array:
        p = jnp.pad(u, 1)
        return 0.1 * (p[2:] - 2 * u + p[:-2]) - u * (p[2:] - p[:-2]) / 2

    def jacobian(u: Array) -> Array:
        p = jnp.pad(u, 1)
        index = np.arange(n)
        centre = -0.2 - (p[2:] - p[:-2]) / 2
        matrix = jnp.zeros((n, n)).at[index, index].set(centre)
        matrix = matrix.at[index[:-1], index[1:]].set(0.1 - u[:-1] / 2)
        return matrix.at[index[1:], index[:-1]].set(0.1 + u[1:] / 2)

    return Case(apply, (normal(0, n),), jacobian)


def implicit_step(n: int) -> Case:
    """The residual of a step of Crank and Nicolson for Burgers' equation on a circle, by the new state."""

    def right_side(u: Array) -> Array:
        ahead, behind = jnp.roll(u, -1), jnp.roll(u, 1)
        return 0.1 * (ahead - 2 * u + behind) - u * (ahead - behind) / 2

    def apply(new: Array, old: Array) -> Array:
        return new - old - 0.05 * (right_side(new) + right_side(old))

    def jacobian(new: Array, old: Array) -> Array:
        ahead, behind = jnp.roll(new, -1), jnp.roll(new, 1)
        pieces = [
            ((0,), 1 - 0.05 * (-0.2 - (ahead - behind) / 2)),
            ((1,), -0.05 * (0.1 - new / 2)),
            ((-1,), -0.05 * (0.1 + new / 2)),
        ]
        return stencil(pieces, new.shape)

    return Case(apply, (normal(0, n), normal(1, n)), jacobian)


def _reaction_diffusion(first, second, by_u, by_v, spread: tuple[float, float]):
    """A right-hand side of two fields (2, n, n) and its Jacobian, from the reactions and their derivatives."""

    def apply(state: Array) -> Array:
        u, v = state
        return jnp.stack([spread[0] * _laplacian(u) + first(u, v), spread[1] * _laplacian(v) + second(u, v)])

    def jacobian(state: Array) -> Array:
        u, v = state
        around = _offsets(2)
        blocks = []
        for k, (own, other) in enumerate((by_u(u, v), by_v(u, v))):
            main = [((0, 0), (own, other)[k] - 4 * spread[k])]
            diffusive = stencil([*main, *((o, jnp.asarray(spread[k])) for o in around)], u.shape)
            reactive = stencil([((0, 0), (own, other)[1 - k])], u.shape)
            row = [diffusive, reactive] if k == 0 else [reactive, diffusive]
            blocks.append(jnp.stack(row, axis=2))
        return jnp.stack(blocks)

    return apply, jacobian


def brusselator(n: int) -> Case:
    """The Brusselator on n x n points."""
    apply, jacobian = _reaction_diffusion(
        lambda u, v: 1.0 + u**2 * v - 4.4 * u,
        lambda u, v: 3.4 * u - u**2 * v,
        lambda u, v: (2 * u * v - 4.4, u**2),
        lambda u, v: (3.4 - 2 * u * v, -(u**2)),
        (0.2, 0.2),
    )
    return Case(apply, (positive(0, 2, n, n),), jacobian)


def lotka_volterra(n: int) -> Case:
    """Predators and prey that diffuse on n x n points."""
    apply, jacobian = _reaction_diffusion(
        lambda u, v: u - 0.5 * u * v,
        lambda u, v: 0.25 * u * v - v,
        lambda u, v: (1.0 - 0.5 * v, -0.5 * u),
        lambda u, v: (0.25 * v, 0.25 * u - 1.0),
        (0.1, 0.3),
    )
    return Case(apply, (positive(0, 2, n, n),), jacobian)


def spectral(n: int) -> Case:
    """Burgers' equation with derivatives by Fourier transforms."""

    def derivative(u: Array) -> Array:
        waves = np.where(np.arange(n // 2 + 1) < n // 2, np.arange(n // 2 + 1), 0)
        return jnp.fft.irfft(np.complex64(1j) * waves.astype(np.complex64) * jnp.fft.rfft(u), n)

    def apply(u: Array) -> Array:
        return -u * derivative(u)

    def jacobian(u: Array) -> Array:
        column = derivative(jnp.zeros(n).at[0].set(1.0))
        index = np.arange(n)
        circulant = column[(index[:, None] - index[None]) % n]
        return (-u[:, None] * circulant).at[index, index].add(-derivative(u))

    return Case(apply, (normal(0, n),), jacobian)


def finite_elements(n: int) -> Case:
    """The residual of a nonlinear bar of n nodes and n - 1 elements, by gather and scatter-add."""

    def apply(u: Array) -> Array:
        ends = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
        stretch = u[ends[:, 1]] - u[ends[:, 0]]
        force = stretch + stretch**3
        return jnp.zeros(n).at[ends].add(jnp.stack([-force, force], axis=1))

    def jacobian(u: Array) -> Array:
        stiffness = 1 + 3 * (u[1:] - u[:-1]) ** 2
        index = np.arange(n)
        main = jnp.zeros(n).at[:-1].add(stiffness).at[1:].add(stiffness)
        matrix = jnp.zeros((n, n)).at[index, index].set(main)
        matrix = matrix.at[index[:-1], index[1:]].set(-stiffness)
        return matrix.at[index[1:], index[:-1]].set(-stiffness)

    return Case(apply, (normal(0, n),), jacobian)
