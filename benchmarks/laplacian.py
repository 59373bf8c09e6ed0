"""The Laplacian of two functions: by symjac, by JAX's Hessian, and by folx where it is installed.

Run ``python -m benchmarks.laplacian``. The first function is an MLP, the second acts on particles one by one.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import symjac

HAS_FOLX = importlib.util.find_spec("folx") is not None
ROUNDS = 15
Function = Callable[[Array], Array]


def mlp(x: Array) -> Array:
    """An MLP of three layers of 64 units."""
    for seed, (rows, columns) in enumerate([(64, x.size), (64, 64), (1, 64)]):
        weights = np.random.default_rng(seed).standard_normal((rows, columns)) / columns**0.5
        x = jnp.tanh(jnp.asarray(weights, x.dtype) @ x)
    return x[0]


def particles(x: Array) -> Array:
    """A sum over particles in space of a smooth function of each."""
    return jnp.sum(jnp.sin(jnp.sum(x.reshape(-1, 3) ** 2, axis=1)))


def contenders(f: Function) -> dict[str, Function]:
    """The ways to compute the Laplacian of a function, each compiled."""
    ways: dict[str, Function] = {
        "symjac.laplacian": symjac.laplacian(f),
        "trace of jax.hessian": lambda x: jnp.trace(jax.hessian(f)(x)),
    }
    if HAS_FOLX:
        import folx  # pyright: ignore[reportMissingImports]  # An optional peer.

        ways["folx.forward_laplacian"] = lambda x: folx.forward_laplacian(f)(x).laplacian
    return {name: jax.jit(way) for name, way in ways.items()}


def main() -> None:
    """Prints a row for each function, size and way."""
    print(f"JAX {jax.__version__}; folx is {'here' if HAS_FOLX else 'not installed'}")
    for f, sizes in ((mlp, (16, 64)), (particles, (96, 768))):
        for size in sizes:
            x = jnp.linspace(-1.0, 1.0, size)
            ways = contenders(f)
            expected = ways["trace of jax.hessian"](x)
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, way in ways.items():
                    start = time.perf_counter()
                    jax.block_until_ready(way(x))
                    seconds[name].append(time.perf_counter() - start)
            for name, way in ways.items():
                cost = way.lower(x).compile().cost_analysis()  # type: ignore[attr-defined]
                error = abs(float(way(x) - expected)) / max(1.0, abs(float(expected)))
                middle = statistics.median(seconds[name][1:]) * 1e6
                row = f"{f.__name__:10} {size:5}  {name:24} {cost['flops'] / 1e6:9.4f} Mflop {middle:9.1f} us"
                print(f"{row}  error {error:.0e}")


if __name__ == "__main__":
    main()
