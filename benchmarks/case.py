"""What a workload is, and the ways to spread blocks that the hand-written Jacobians use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array


@dataclass(frozen=True)
class Case:
    """A program of some size.

    Attributes:
        function: The program; the first argument is the one that is differentiated.
        args: Its arguments.
        handwritten: The Jacobian (or Hessian) that an expert writes, a function of the same arguments.
    """

    function: Callable[..., Array]
    args: tuple[Any, ...]
    handwritten: Callable[..., Array]


@dataclass(frozen=True)
class Workload:
    """A program at three sizes.

    Attributes:
        name: Its name.
        make: Makes the program of a size.
        sizes: A small, a medium and a large size.
        kind: Whether users want its Jacobian or its Hessian.
        mode: The mode in which a user of JAX would write it.
    """

    name: str
    make: Callable[[int], Case]
    sizes: tuple[int, int, int]
    kind: Literal["jacobian", "hessian"] = "jacobian"
    mode: Literal["jacfwd", "jacrev", "hessian"] = "jacfwd"


def normal(seed: int, *shape: int) -> Array:
    """Numbers of the standard normal distribution."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def positive(seed: int, *shape: int) -> Array:
    """Numbers between 0.5 and 1.5."""
    return jnp.asarray(np.random.default_rng(seed).uniform(0.5, 1.5, shape), jnp.float32)


def integers(seed: int, high: int, *shape: int) -> np.ndarray:
    """Integers from 0 to ``high - 1``."""
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)


def weight(seed: int, n_out: int, n_in: int) -> Array:
    """A matrix that keeps the size of its argument."""
    return normal(seed, n_out, n_in) / n_in**0.5


def diagonal(values: Array) -> Array:
    """The array (*s, *s) with an array of shape s on its diagonal."""
    n = values.size
    index = np.arange(n)
    return jnp.zeros((n, n), values.dtype).at[index, index].set(values.reshape(n)).reshape(values.shape * 2)


def block_diagonal(blocks: Array) -> Array:
    """Spreads blocks (b, o, i) to a block-diagonal (b, o, b, i)."""
    b, o, i = blocks.shape
    index = np.arange(b)
    return jnp.zeros((b, o, b, i), blocks.dtype).at[index, :, index, :].set(blocks)


def scattered(rows: Array, columns: Array, values: Array, shape: tuple[int, int]) -> Array:
    """A matrix with values at given rows and columns; values at one place are added."""
    return jnp.zeros(shape, values.dtype).at[rows, columns].add(values)


def stencil(pieces: list[tuple[tuple[int, ...], Array]], shape: tuple[int, ...]) -> Array:
    """The Jacobian of a periodic stencil: for each offset the coefficient at each point, of the given shape."""
    n = int(np.prod(shape))
    index = np.arange(n).reshape(shape)
    axes = tuple(range(len(shape)))
    columns = [np.roll(index, tuple(-o for o in offset), axes).reshape(n) for offset, _ in pieces]
    values = [jnp.broadcast_to(value, shape).reshape(n) for _, value in pieces]
    rows = np.tile(np.arange(n), len(pieces))
    matrix = scattered(rows, np.concatenate(columns), jnp.concatenate(values), (n, n))
    return matrix.reshape(shape * 2)
