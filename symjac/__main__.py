"""Times `symjac.jacfwd(f)` against `jax.jit(jax.jacfwd(f))`: run `python -m symjac`.

The first table is the report that symjac starts from: the Jacobian of `x -> A @ x` is `A`, which exists already.
The second has programs whose Jacobians are dense, diagonal, banded and block diagonal.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import symjac

SECONDS_PER_MEASUREMENT = 1.0
MOST_CALLS = 50


@dataclass(frozen=True)
class Measurement:
    """A result, the seconds that the first call took, and the median seconds of the later calls."""

    result: Array
    first: float
    later: float


@dataclass(frozen=True)
class Program:
    """A function of one array, and a point at which to take its Jacobian."""

    name: str
    function: Callable[[Array], Array]
    point: Array


def timed(call: Callable[[], Array]) -> tuple[Array, float]:
    """Returns the result of a call, when it is ready, and the seconds until then."""
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - start


def measure(call: Callable[[], Array]) -> Measurement:
    """Calls once, and then until a second has passed or there are fifty later calls."""
    result, first = timed(call)
    later: list[float] = []
    while not later or (sum(later) < SECONDS_PER_MEASUREMENT and len(later) < MOST_CALLS):
        result = None
        result, seconds = timed(call)
        later.append(seconds)
    return Measurement(result, first, statistics.median(later))


def jax_jacobian(program: Program) -> Measurement:
    """Measures `jax.jit(jax.jacfwd(f))`."""
    transformed = jax.jit(jax.jacfwd(program.function))
    return measure(lambda: transformed(program.point))


def symjac_jacobian(program: Program) -> Measurement:
    """Measures `symjac.jacfwd(f)`, which is called as it is, without `jax.jit`."""
    transformed = symjac.jacfwd(program.function)
    return measure(lambda: transformed(program.point))


def linear_report(n: int) -> str:
    """Returns the table for `x -> A @ x` with a random `n` x `n` matrix `A`."""
    matrix = jax.block_until_ready(normal(0, (n, n)))
    program = Program("A @ x", lambda x: matrix @ x, normal(1, (n,)))
    progress(f"jax.jacfwd of A @ x, n = {n}")
    theirs = jax_jacobian(program)
    progress(f"symjac.jacfwd of A @ x, n = {n}")
    ours = symjac_jacobian(program)
    copy = measure(lambda: jnp.array(matrix, copy=True))
    rows = [
        ("", "first call", "later calls", "equals A", "is A"),
        ("jax.jit(jax.jacfwd(f))", *times(theirs), *compared(theirs.result, matrix)),
        ("symjac.jacfwd(f)", *times(ours), *compared(ours.result, matrix)),
        ("a copy of A", "", duration(copy.later), "", ""),
    ]
    speed_up = f"symjac's later calls are {ratio(theirs.later / ours.later)} as fast as JAX's"
    return f"f = lambda x: A @ x, with a random {n} x {n} A in float32\n\n{table(rows)}\n\n{speed_up}"


def compared(result: Array, matrix: Array) -> tuple[str, str]:
    """Returns whether a result equals the matrix, or by how much it does not, and whether it is the matrix itself."""
    error = largest_error(result, matrix)
    return ("yes" if error == 0 else f"to {error:.0e}"), ("yes" if result is matrix else "no")


def comparison_report(n: int) -> str:
    """Returns the table of the other programs, a row for each."""
    rows = [("", "Jacobian", "JAX first", "JAX later", "symjac first", "symjac later", "speed-up", "max error")]
    for program in programs(n):
        progress(program.name)
        theirs, ours = jax_jacobian(program), symjac_jacobian(program)
        shape = " x ".join(map(str, ours.result.shape))
        speed_up = ratio(theirs.later / ours.later)
        error = f"{largest_error(ours.result, theirs.result):.0e}"
        rows.append((program.name, shape, *times(theirs), *times(ours), speed_up, error))
    return table(rows)


def programs(n: int) -> list[Program]:
    """Returns the programs of the second table, with sizes of at most `n` whose Jacobians stay below 40 MB."""
    wide, hidden, narrow, batch = min(n, 3000), min(n, 1000), min(n, 100), min(n, 32)
    first, second = normal(2, (hidden, hidden)) / hidden**0.5, normal(3, (narrow, hidden)) / hidden**0.5
    weights = normal(4, (64, 64)) / 8

    def heat(u: Array) -> Array:
        return 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)) - u**3

    return [
        Program("two-layer MLP", lambda x: second @ jnp.tanh(first @ x), normal(5, (hidden,))),
        Program("elementwise, x * sin(x)", lambda x: x * jnp.sin(x), normal(6, (wide,))),
        Program("stencil, heat and reaction", heat, normal(7, (wide,))),
        Program("batched layer, tanh(X @ W)", lambda x: jnp.tanh(x @ weights), normal(8, (batch, 64))),
    ]


def normal(seed: int, shape: tuple[int, ...]) -> Array:
    """Returns random numbers of the standard normal distribution, in float32."""
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def largest_error(result: Array, reference: Array) -> float:
    """Returns the largest difference between two arrays, relative to the largest entry of the second."""
    scale = float(jnp.max(jnp.abs(reference)))
    return float(jnp.max(jnp.abs(result - reference))) / (scale or 1.0)


def times(measurement: Measurement) -> tuple[str, str]:
    """Returns the first call's time and the later calls' as text."""
    return duration(measurement.first), duration(measurement.later)


def duration(seconds: float) -> str:
    """Returns a time with its unit, to three digits.

    >>> duration(7.4e-6), duration(0.0123), duration(2.5)
    ('7.40 us', '12.3 ms', '2.50 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{digits(seconds / size)} {unit}"
    return f"{digits(seconds / 1e-9)} ns"


def ratio(value: float) -> str:
    """Returns a factor as text.

    >>> ratio(1.234), ratio(123456.0)
    ('1.23x', '123,456x')
    """
    return f"{digits(value)}x"


def digits(value: float) -> str:
    """Returns a number to three digits, or to its last whole digit where it has more of them."""
    decimals = int(np.clip(2 - np.floor(np.log10(max(value, 1e-2))), 0, 3))
    return f"{value:,.{decimals}f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of text as aligned columns, the first to the left and the others to the right.

    >>> print(table([("", "time"), ("copy", "2 s")]))
          time
    ----  ----
    copy   2 s
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in lines
    )


def progress(message: str) -> None:
    """Tells on standard error what is being measured."""
    print(f"... {message}", file=sys.stderr, flush=True)


def warm_up() -> None:
    """Starts JAX's backend and its thread pools, so that no first call below pays for that."""
    small: Any = jnp.ones((256, 256))
    jax.block_until_ready(jax.jit(lambda x: x @ x)(small))


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(prog="python -m symjac", description=__doc__ and __doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=3000, help="size of A; the other sizes follow it (default: 3000)")
    options = parser.parse_args()
    if options.n < 1:
        parser.error("--n must be at least 1")
    warm_up()
    device = jax.devices()[0]
    print(f"JAX {jax.__version__} on {device.platform} ({device.device_kind})\n")
    print(linear_report(options.n), flush=True)
    print(f"\nOther programs: jax.jit(jax.jacfwd(f)) against symjac.jacfwd(f)\n\n{comparison_report(options.n)}")


if __name__ == "__main__":
    main()
