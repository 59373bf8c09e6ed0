"""Measures a transform: first call, run time, and what XLA says of the compiled program."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import symjac

from .case import Case, Workload
from .peers import peers

ROUNDS = 9
SECONDS_PER_ROUND = 0.01

UNDER_JIT = "jit(symjac)"
"""`symjac.jacobian`, or `hessian`, under `jax.jit`, as JAX's are; the others of symjac's are called as they are."""


@dataclass(frozen=True)
class Compiled:
    """What XLA says of a compiled program; deterministic.

    Attributes:
        flops: Floating-point operations.
        bytes: Bytes read and written.
        memory: Bytes of temporaries and of outputs.
    """

    flops: float
    bytes: float
    memory: float


@dataclass(frozen=True)
class Times:
    """Seconds of calls.

    Attributes:
        first: The first call, with tracing and compilation.
        median: The median of the later calls.
        spread: Half of the distance between their quartiles.
        least: The shortest of them, which other work on the machine disturbs least.
    """

    first: float
    median: float
    spread: float
    least: float


def contenders(workload: Workload, case: Case, *, with_peers: bool = False) -> dict[str, Callable[..., Any]]:
    """What is compared on a workload, each a function of the case's arguments, made anew."""
    shape = jax.eval_shape(case.handwritten, *case.args)
    f = case.function

    def fresh(*args: Any) -> Any:
        return f(*args)

    if workload.kind == "hessian":
        chosen: dict[str, Callable[..., Any]] = {
            "symjac.hessian": symjac.hessian(fresh),
            UNDER_JIT: jax.jit(symjac.hessian(fresh)),
            "jax.hessian": jax.jit(jax.hessian(fresh)),
        }
    else:
        chosen = {
            "symjac.jacfwd": symjac.jacfwd(fresh),
            "symjac.jacrev": symjac.jacrev(fresh),
            "symjac.jacobian": symjac.jacobian(fresh),
            UNDER_JIT: jax.jit(symjac.jacobian(fresh)),
            "jax.jacfwd": jax.jit(jax.jacfwd(fresh)),
            "jax.jacrev": jax.jit(jax.jacrev(fresh)),
        }
    if with_peers:
        chosen |= peers(workload, case)
    hand = case.handwritten
    chosen["hand-written"] = jax.jit(lambda *args: hand(*args))
    chosen["filling"] = jax.jit(lambda *args: jnp.full(shape.shape, args[0].reshape(-1)[0], shape.dtype))
    return chosen


def compiled(function: Callable[..., Any], args: Sequence[Any]) -> Compiled:
    """Compiles a function of arrays and asks XLA what it costs."""
    program = jax.jit(lambda *a: function(*a)).lower(*args).compile()
    costs = program.cost_analysis() or {}
    memory = program.memory_analysis()
    return Compiled(
        flops=max(0.0, float(costs.get("flops", 0.0))),
        bytes=float(costs.get("bytes accessed", 0.0)),
        memory=float(memory.temp_size_in_bytes + memory.output_size_in_bytes) if memory else math.nan,
    )


def run_times(
    workload: Workload, size: int, rounds: int = ROUNDS, first_calls: int = 1, *, with_peers: bool = False
) -> dict[str, Times]:
    """The times of all contenders on one size, interleaved. Of other packages, those that work."""
    case = workload.make(size)
    jax.block_until_ready(case.args)
    names = list(contenders(workload, case))
    if with_peers:
        names.extend(name for name, peer in peers(workload, case).items() if _works(peer, case))
    first: dict[str, list[float]] = {name: [] for name in names}
    functions: dict[str, Callable[..., Any]] = {}
    for _ in range(first_calls):
        for name in names:
            jax.clear_caches()
            symjac.clear_caches()
            functions[name] = contenders(workload, case, with_peers=with_peers)[name]
            first[name].append(_seconds(functions[name], case.args, 1))
    counts = {name: _count(function, case.args) for name, function in functions.items()}
    later: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, function in functions.items():
            later[name].append(_seconds(function, case.args, counts[name]) / counts[name])
    return {
        name: Times(statistics.median(first[name]), *_median_and_spread(later[name]), min(later[name]))
        for name in names
    }


def _works(function: Callable[..., Any], case: Case) -> bool:
    """Whether another package runs; some lack rules for some primitives."""
    try:
        jax.block_until_ready(function(*case.args))
    except Exception as error:
        print(f"left out: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return False
    return True


def _count(function: Callable[..., Any], args: Sequence[Any]) -> int:
    _seconds(function, args, 1)
    return max(1, min(1000, int(SECONDS_PER_ROUND / _seconds(function, args, 1))))


def _seconds(function: Callable[..., Any], args: Sequence[Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        jax.block_until_ready(function(*args))
    return time.perf_counter() - start


def _median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return middle, (high - low) / 2


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the logarithms: how a value grows with the size; NaN where a value is zero."""
    if len(sizes) < 2 or any(not value > 0 for value in values):
        return math.nan
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    return statistics.linear_regression(x, y).slope
