"""Milstein's method for any noise: the bilinear map of diffusion and noise is abstract, and symjac materialises it.

A stochastic differential equation ``dy = f(y) dt + prod(g(y), dw)`` is solved for a `prod` of which the method knows
nothing: the noise may be scalar, diagonal, a matrix times several noises, or a tree of all of these. The correction

    1/2 sum over k, j1, j2 of  G[k, j1] dG[i, j2]/dy[k] (dw[j1] dw[j2] - [j1 == j2] dt)

needs the matrix ``G``, which is the Jacobian of the linear function ``dw -> prod(g, dw)``. `jax.jacfwd` computes it by
as many products as there are noises. `symjac.jacfwd` costs no more than to write the matrix down, and nothing at all
where it is a matrix already: then it returns that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import symjac


def milstein_step(
    drift: Callable[[Any], Any],
    diffusion: Callable[[Any], Any],
    prod: Callable[[Any, Any], Any],
    y: Any,
    dt: Array,
    dw: Any,
    *,
    ito: bool = True,
    jacfwd: Callable[..., Any] = symjac.jacfwd,
) -> Any:
    """One step of Milstein's method, for noise that commutes.

    Args:
        drift: Gives ``f(y)``.
        diffusion: Gives ``g(y)``, of any form that `prod` takes.
        prod: The bilinear map of the diffusion and the noise.
        y: The state, an array.
        dt: The length of the step.
        dw: The increments of the noise, a pytree.
        ito: Whether the equation is meant in the sense of Itô, else of Stratonovich.
        jacfwd: What materialises the bilinear map.
    """
    g = diffusion(y)
    matrix = jacfwd(lambda dw: prod(g, dw))(dw)
    _, slope = jax.jvp(diffusion, (y,), (prod(g, dw),))
    correction = prod(slope, dw)
    if ito:
        for noise, own in _by_leaf(matrix, dw):
            correction -= dt * _sum_over_noises(diffusion, prod, jacfwd, y, dw, noise, own)
    return y + drift(y) * dt + prod(g, dw) + correction / 2


def _by_leaf(matrix: Any, dw: Any) -> list[tuple[int, Array]]:
    """The number of each leaf of the noise, and its part of the matrix, with all noises on the last axis."""
    blocks = [
        jnp.reshape(block, (*block.shape[: block.ndim - jnp.ndim(leaf)], -1))
        for block, leaf in zip(jax.tree.leaves(matrix), jax.tree.leaves(dw), strict=True)
    ]
    return list(enumerate(blocks))


def _sum_over_noises(
    diffusion: Callable[[Any], Any],
    prod: Callable[[Any, Any], Any],
    jacfwd: Callable[..., Any],
    y: Any,
    dw: Any,
    noise: int,
    matrix: Array,
) -> Array:
    """The sum over the noises `j` of one leaf of the derivative of column `j` of the matrix along that column."""

    def along(column: Array) -> Array:
        _, slope = jax.jvp(diffusion, (y,), (column,))
        return _by_leaf(jacfwd(lambda dw: prod(slope, dw))(dw), dw)[noise][1]

    slopes = jax.vmap(along, in_axes=-1, out_axes=-1)(matrix)
    return jnp.trace(slopes, axis1=-2, axis2=-1)


# --- four kinds of noise -------------------------------------------------------------------------------------------


def scalar_prod(g: Array, dw: Array) -> Array:
    """One noise for all: `g` is a vector."""
    return g * dw


def diagonal_prod(g: Array, dw: Array) -> Array:
    """A noise for each: `g` is a vector, which stands for a diagonal matrix."""
    return g * dw


def matrix_prod(g: Array, dw: Array) -> Array:
    """Several noises for all: `g` is a matrix."""
    return g @ dw


def mixed_prod(g: dict[str, Array], dw: dict[str, Array]) -> Array:
    """All of these at once, by name."""
    return g["common"] * dw["common"] + g["own"] * dw["own"] + g["factors"] @ dw["factors"]


def main() -> None:
    """Compares the cost of the four bilinear maps."""
    n, m = 1000, 400
    key = jax.random.key(0)
    vector, table = jax.random.normal(key, (n,)), jax.random.normal(key, (n, m))
    mixed = {"common": vector, "own": vector, "factors": table}
    zeros = {"common": jnp.zeros(()), "own": jnp.zeros(n), "factors": jnp.zeros(m)}
    cases = {
        "scalar": (scalar_prod, vector, zeros["common"]),
        "diagonal": (diagonal_prod, vector, zeros["own"]),
        "matrix": (matrix_prod, table, zeros["factors"]),
        "mixed": (mixed_prod, mixed, zeros),
    }
    for name, (prod, g, dw) in cases.items():
        counts = []
        for transform in (symjac.jacfwd, jax.jacfwd):
            compiled = jax.jit(lambda g, dw: transform(lambda dw: prod(g, dw))(dw)).lower(g, dw).compile()  # noqa: B023
            counts.append((compiled.cost_analysis() or {}).get("flops", 0.0))
        print(f"{name:10} symjac {counts[0]:14,.0f} flops, jax {counts[1]:14,.0f} flops")


if __name__ == "__main__":
    main()
