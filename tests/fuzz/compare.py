"""Compares a transform of symjac with JAX's on one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

import symjac

from .evaluate import evaluate, noting_singularities
from .program import Program

TRANSFORMS = ("jacfwd", "jacrev", "jacobian", "hessian", "linearize", "outer")
TOLERANCE = {"float64": 1e-7, "complex128": 1e-7, "float32": 5e-3, "complex64": 5e-3, "float16": 0.1, "bfloat16": 0.3}
MAX_HESSIAN = 12
_NOT_FINITE = "not finite where JAX is zero"
TOO_LARGE = {"float16": 50.0, "bfloat16": 50.0, "float32": 1e3, "complex64": 1e3}


@dataclass(frozen=True)
class Outcome:
    """What came of a comparison: "same", "failed", or why it says nothing.

    It is "dropped" where JAX itself computes a NaN or an infinity inside, drops it, and has an exact zero for a NaN of
    symjac. README says so.
    """

    kind: str
    transform: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether symjac is wrong."""
        return self.kind == "failed"


def transforms_for(program: Program, random: Random) -> list[str]:
    """The transforms to compare on a program."""
    chosen = ["jacfwd"]
    if random.random() < 0.2:
        chosen.append("linearize")
    if program.reverse:
        chosen.append(random.choice(("jacrev", "jacrev", "jacobian")))
        if random.random() < 0.15:
            chosen.append(random.choice(("hessian", "outer")))
    return chosen


def compare(program: Program, transform: str, *, compiled: bool = False) -> Outcome:
    """Compares one transform; `compiled` runs both as a user does, otherwise their jaxprs are interpreted.

    JAX's two modes differ where a NaN is dropped; there `symjac.jacobian` may take either.
    """
    if transform == "linearize":
        from .compare_jacobian import compare_jacobian

        return compare_jacobian(program)
    args = program.arguments()
    f = program.function() if compiled else traced_function(program)
    if transform in ("hessian", "outer") and sum(np.size(a) for a in args) > MAX_HESSIAN:
        return Outcome("skipped", transform, "large")
    options = {"argnums": program.argnums, "holomorphic": program.holomorphic}
    runner = called if compiled else interpreted
    try:
        want = runner(_transformed(jax, transform, f, options), args)
    except Exception as error:
        return _both_raise(lambda: runner(_transformed(symjac, transform, f, options), args), transform, error)
    try:
        got = runner(_transformed(symjac, transform, f, options), args)
    except Exception as error:
        return Outcome("failed", transform, f"raises {type(error).__name__}: {str(error)[:500]}")
    message = difference(got, want)
    if message is not None and transform == "jacobian" and "not finite" in message:
        forward = runner(_transformed(jax, "jacfwd", f, options), args)
        message = difference(got, forward) and message
    return outcome_of(message, transform, lambda: is_singular(_transformed(jax, transform, f, options), args))


def outcome_of(message: str | None, transform: str, singular: Callable[[], bool]) -> Outcome:
    """What a difference, or None, comes to; `singular` tells whether JAX's computation is."""
    if message is None:
        return Outcome("same", transform)
    if _NOT_FINITE in message and singular():
        return Outcome("dropped", transform, message)
    return Outcome("doubtful" if message.startswith("doubtful") else "failed", transform, message)


def _transformed(module: Any, transform: str, f: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """A transform of a module; "outer" is JAX's forward derivative of the module's forward Jacobian."""
    if transform == "outer":
        return jax.jacfwd(module.jacfwd(f, **options), **options)
    return getattr(module, transform)(f, **options)


@functools.lru_cache(maxsize=2)
def traced_function(program: Program) -> Callable[..., Any]:
    """The function, traced once for all transforms, which saves more than half of the time."""
    f = program.function()
    if "custom_" in program.source():  # A rule may be closed over a value of the trace, which would have ended.
        return f
    try:
        closed, shapes = jax.make_jaxpr(f, return_shape=True)(*program.arguments())
    except Exception:
        return f
    tree = jax.tree.structure(shapes)

    def function(*args: Any) -> Any:
        return tree.unflatten(jaxpr_as_fun(closed)(*args))

    return function


def is_singular(transformed: Callable[..., Any], args: list[Any]) -> bool:
    """Whether a computation of finite arguments meets a NaN or an infinity on its way."""
    with noting_singularities() as primitives:
        interpreted(transformed, args)
    return bool(primitives)


def _both_raise(call: Callable[[], Any], transform: str, error: Exception) -> Outcome:
    if not isinstance(error, TypeError | ValueError):
        return Outcome("skipped", transform, f"JAX raises {type(error).__name__}: {str(error)[:100]}")
    try:
        call()
    except type(error):
        return Outcome("same", transform)
    except Exception as other:
        return Outcome("failed", transform, f"raises {type(other).__name__} where JAX raises {error}")
    return Outcome("skipped", transform, f"JAX raises {type(error).__name__}: {str(error)[:100]}")


def called(transformed: Callable[..., Any], args: list[Any]) -> Any:
    first = transformed(*args)
    return first if transformed.__module__ is None else transformed(*args)


@dataclass(frozen=True)
class Result:
    """An array with its weak type."""

    value: np.ndarray
    weak_type: bool


def interpreted(transformed: Callable[..., Any], args: list[Any]) -> Any:
    closed, shapes = jax.make_jaxpr(transformed, return_shape=True)(*args)
    values = evaluate(closed, jax.tree.leaves(args))
    results = [Result(v, getattr(out, "weak_type", False)) for v, out in zip(values, closed.out_avals, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def difference(got: Any, want: Any) -> str | None:
    """How two trees differ, or None."""
    is_leaf = lambda leaf: isinstance(leaf, Result)  # noqa: E731
    ours, our_tree = jax.tree.flatten(got, is_leaf=is_leaf)
    theirs, their_tree = jax.tree.flatten(want, is_leaf=is_leaf)
    if our_tree != their_tree:
        return f"tree {our_tree}, JAX's is {their_tree}"
    doubtful = None
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        message = _leaf_difference(a, b)
        if message is not None and not message.startswith("doubtful"):
            return f"leaf {i}: {message}"
        doubtful = doubtful or message
    return doubtful


def _leaf_difference(got: Any, want: Any) -> str | None:
    (a, weak_a), (b, weak_b) = _opened(got), _opened(want)
    if a.shape != b.shape:
        return f"shape {a.shape}, JAX's is {b.shape}"
    if a.dtype != b.dtype:
        return f"dtype {a.dtype}, JAX's is {b.dtype}"
    if weak_a != weak_b:
        return f"weak type {weak_a}, JAX's is {weak_b}"
    name = str(a.dtype)
    if name not in TOLERANCE:
        return None if np.array_equal(a, b) else "integers differ"
    wide = np.complex128 if np.iscomplexobj(b) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=1.0))
    doubtful = "doubtful " if scale > TOO_LARGE.get(name, 1e8) else ""
    stray = finite & ~np.isfinite(a)
    if stray.any():
        return f"{doubtful}{'not finite where JAX is' if b[stray].any() else _NOT_FINITE}: {_first(a, b, stray)}"
    wrong = finite & (np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)) > TOLERANCE[name] * scale)
    infinite = np.isinf(b) & np.isfinite(a) & (a != 0)
    if wrong.any() or infinite.any():
        return f"{doubtful}value: {_first(a, b, wrong | infinite)}"
    return None


def _first(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"at {place} {got[place]}, JAX's is {want[place]} ({int(wrong.sum())} of {wrong.size} entries)"


def _opened(leaf: Any) -> tuple[np.ndarray, bool]:
    if isinstance(leaf, Result):
        return leaf.value, leaf.weak_type
    return np.asarray(leaf), bool(jax.typeof(leaf).weak_type)


def in_double(program: Program) -> Program | None:
    """The same program in double precision, to tell a wrong number from a rounding error."""
    text = repr(program)
    changed = text
    for narrow, wide in (
        ("float32", "float64"),
        ("bfloat16", "float64"),
        ("float16", "float64"),
        ("complex64", "complex128"),
    ):
        changed = changed.replace(narrow, wide)
    if changed == text:
        return None
    from . import program as module

    return eval(changed, {**vars(module), "frozenset": frozenset})


def is_rounding(program: Program, outcome: Outcome) -> bool:
    """Whether a mismatch of values, or in half precision an overflow, vanishes in double precision."""
    may_overflow = "float16" in repr(program) and "not finite" in outcome.message
    if not outcome.failed or not (may_overflow or "value" in outcome.message):
        return False
    double = in_double(program)
    return double is not None and compare(double, outcome.transform).kind in ("same", "doubtful")
