"""`python -m benchmarks.layers`: the Jacobian of every layer of Equinox by its input, against `equinox.filter_jacfwd`.

Each layer is measured alone and mapped over a batch. Both sides are compiled by `equinox.filter_jit`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

import symjac

from .case import normal

KEY = jax.random.key(0)
Layer = Callable[[Array], Any]


def layers(n: int) -> dict[str, tuple[Layer, Array]]:
    """The layers of some width, and an input for each."""
    nn, side = eqx.nn, max(4, n // 8)
    attention, gru, lstm = nn.MultiheadAttention(4, n, key=KEY), nn.GRUCell(n, n, key=KEY), nn.LSTMCell(n, n, key=KEY)
    state, image = normal(5, n), normal(0, 4, side, side)
    return {
        "Linear": (nn.Linear(n, n, key=KEY), normal(0, n)),
        "MLP": (nn.MLP(n, n, n, 2, activation=jnp.tanh, key=KEY), normal(0, n)),
        "Conv1d": (nn.Conv1d(4, 4, 3, key=KEY), normal(0, 4, n)),
        "Conv2d": (nn.Conv2d(4, 4, 3, padding=1, key=KEY), image),
        "LayerNorm": (nn.LayerNorm((n,)), normal(0, n)),
        "GroupNorm": (nn.GroupNorm(2, 4), image),
        "RMSNorm": (nn.RMSNorm((n,)), normal(0, n)),
        "MultiheadAttention": (lambda x: attention(x, x, x), normal(0, 4, n)),
        "GRUCell": (lambda x: gru(x, state), normal(0, n)),
        "LSTMCell": (lambda x: lstm(x, (state, state)), normal(0, n)),
        "Dropout": (nn.Dropout(0.5, inference=True), normal(0, n)),
        "AvgPool2d": (nn.AvgPool2d(2, 2), image),
        "MaxPool2d": (nn.MaxPool2d(2, 2), image),
        "PReLU": (nn.PReLU(), normal(0, n)),
    }


def embedding(n: int) -> tuple[Callable[[Any], Any], Any]:
    """An embedding, which has a Jacobian by its table only."""
    tokens = jnp.arange(0, n, 3)
    table = eqx.nn.Embedding(n, 8, key=KEY)
    return lambda table: jax.vmap(table)(tokens), table


def main() -> None:
    """Measures, and prints a line for each layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which layers; all without")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    print(f"{'layer':<28}{'symjac':>12}{'equinox':>12}{'faster':>9}{'MFLOP':>12}{'MFLOP':>12}{'fewer':>9}")
    for name, function, x in _cases(options):
        mine, theirs = (_measure(transform, function, x) for transform in (symjac.filter_jacfwd, eqx.filter_jacfwd))
        print(
            f"{name:<28}{mine[0] * 1e3:>9.3f} ms{theirs[0] * 1e3:>9.3f} ms{theirs[0] / mine[0]:>8.1f}x"
            f"{mine[1] / 1e6:>12.3f}{theirs[1] / 1e6:>12.3f}{_ratio(theirs[1], mine[1]):>8.1f}x",
            flush=True,
        )


def _cases(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    chosen = {name: case for name, case in layers(options.width).items() if not options.names or name in options.names}
    for name, (layer, x) in chosen.items():
        yield name, layer, x
        batch = jnp.stack([x * (1 + i / 8) for i in range(options.batch)])
        yield f"{name} x {options.batch}", eqx.filter_vmap(layer), batch
    if not options.names or "Embedding" in options.names:
        yield ("Embedding", *embedding(options.width))


def _ratio(theirs: float, mine: float) -> float:
    return theirs / mine if mine else float("inf") if theirs else 1.0


def _measure(transform: Callable[..., Any], function: Callable[[Any], Any], x: Any) -> tuple[float, float]:
    """The median time of a call, and the flops that XLA counts."""
    arrays, rest = eqx.partition(x, eqx.is_array)
    compiled = jax.jit(lambda arrays: transform(function)(eqx.combine(arrays, rest))).lower(arrays).compile()
    jax.block_until_ready(compiled(arrays))
    times = []
    for _ in range(15):
        start = time.perf_counter()
        jax.block_until_ready(compiled(arrays))
        times.append(time.perf_counter() - start)
    return statistics.median(times), (compiled.cost_analysis() or {}).get("flops", 0.0)


if __name__ == "__main__":
    main()
