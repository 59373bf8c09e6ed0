"""What the tests share: symjac's transforms against JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import symjac

MODES = ("eager", "jit", "vmap")
RELATIVE_TOLERANCE = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}


def check_against_jax(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    transform: str = "jacfwd",
    modes: Sequence[str] = MODES,
    rtol: float | None = None,
    atol: float | None = None,
    **options: Any,
) -> Any:
    """Checks that a transform of symjac gives what JAX's of the same name gives, and returns symjac's eager result.

    Value, shape, dtype, weak type and tree are compared: of the eager call, under `jax.jit`, and under `jax.vmap` over
    two unequal copies of the arguments. JAX's side is compiled, unless `f` cannot be (leave "jit" out of `modes`).

    Args:
        f: The function.
        *args: Its arguments. What is neither an array nor a number is not batched under `vmap`.
        argnums: Passed on to the transform.
        transform: The name of the transform in both modules.
        modes: Which of "eager", "jit" and "vmap" to check.
        rtol: The relative tolerance. The default depends on the dtype.
        atol: The absolute tolerance. The default is `rtol` times the largest finite entry of JAX's result.
        **options: Passed on to the transform.

    Raises:
        AssertionError: where the two differ.
    """
    ours = getattr(symjac, transform)(f, argnums=argnums, **options)
    theirs = getattr(jax, transform)(f, argnums=argnums, **options)
    tolerances: dict[str, Any] = {"rtol": rtol, "atol": atol}
    result = None
    if "eager" in modes or "jit" in modes:
        want = jit_dynamic(theirs, args) if "jit" in modes else theirs(*args)
        if "eager" in modes:
            result = ours(*args)
            assert_same(result, want, "eager", **tolerances)
        if "jit" in modes:
            assert_same(jit_dynamic(ours, args), want, "jit", **tolerances)
    if "vmap" in modes:
        batched, axes = stacked(args)
        want = jit_dynamic(jax.vmap(theirs, axes), batched)
        assert_same(jit_dynamic(jax.vmap(ours, axes), batched), want, "vmap", **tolerances)
    return result


def assert_structured(f: Callable[..., Any], *args: Any, argnums: int | Sequence[int] = 0) -> Any:
    """Returns `symjac.jacfwd(f, argnums)(*args)`, and fails where any part of it would fall back to a dense tangent."""
    with symjac.strict():
        return symjac.jacfwd(f, argnums=argnums)(*args)


def assert_same(got: Any, want: Any, where: str, rtol: float | None = None, atol: float | None = None) -> None:
    """Checks that two pytrees of arrays agree in tree, shape, dtype, weak type and value."""
    assert jax.tree.structure(got) == jax.tree.structure(want), f"{where}: another tree"
    pairs = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
    for (path, actual), expected in pairs:
        name = f"{where} {jax.tree_util.keystr(path)}"
        assert jnp.shape(actual) == jnp.shape(expected), f"{name}: shape {actual.shape}, JAX's is {expected.shape}"
        assert actual.dtype == expected.dtype, f"{name}: dtype {actual.dtype}, JAX's is {expected.dtype}"
        assert weak(actual) == weak(expected), f"{name}: weak type {weak(actual)}, JAX's is {weak(expected)}"
        assert_close(actual, expected, name, rtol, atol)


def assert_close(actual: Any, expected: Any, name: str, rtol: float | None = None, atol: float | None = None) -> None:
    """Checks the values of two arrays, where a NaN equals a NaN, with tolerances that follow the dtype."""
    if not jnp.issubdtype(expected.dtype, jnp.inexact):
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), err_msg=name)
        return
    rtol = RELATIVE_TOLERANCE[str(expected.dtype)] if rtol is None else rtol
    actual, expected = widened(actual), widened(expected)
    if atol is None:
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=1e-3)
        atol = rtol * float(largest)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True, err_msg=name)


def jit_dynamic(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Returns `jax.jit(f)(*args)` with the arguments that are no pytrees of arrays closed over."""
    dynamic = [i for i, arg in enumerate(args) if is_dynamic(arg)]

    def inner(values: Sequence[Any]) -> Any:
        filled = list(args)
        for i, value in zip(dynamic, values, strict=True):
            filled[i] = value
        return f(*filled)

    return jax.jit(inner)([args[i] for i in dynamic])


def stacked(args: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
    """Returns the arguments with a leading axis of two unequal copies, and vmap's `in_axes` for them."""
    axes = tuple(0 if is_dynamic(arg) else None for arg in args)
    return tuple(jax.tree.map(twice, arg) if is_dynamic(arg) else arg for arg in args), axes


def twice(leaf: Any) -> Any:
    """Stacks an array and a multiple of it close to it, or two equal copies where it does not hold inexact numbers."""
    leaf = jnp.asarray(leaf)
    other = leaf * 0.875 if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
    return jnp.stack([leaf, other])


def is_dynamic(arg: Any) -> bool:
    """Whether each leaf of an argument is an array or a number."""
    return all(
        isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex) for leaf in jax.tree.leaves(arg)
    )


def weak(leaf: Any) -> bool:
    """Whether an array is of weak type."""
    return bool(jax.typeof(leaf).weak_type)


def widened(leaf: Any) -> np.ndarray:
    """Returns an array as NumPy's of double precision, since NumPy does not compare bfloat16."""
    array = np.asarray(leaf)
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def array(seed: int, *shape: int, dtype: Any = np.float32) -> jax.Array:
    """Returns numbers of the standard normal distribution that depend on the seed only."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def positive(seed: int, *shape: int, dtype: Any = np.float32) -> jax.Array:
    """Returns numbers between 0.5 and 1.5 that depend on the seed only."""
    return jnp.asarray(np.random.default_rng(seed).uniform(0.5, 1.5, shape), dtype)


def flops(f: Callable[..., Any], *args: Any) -> float:
    """Returns the floating-point operations of the compiled program, as XLA counts them."""
    analysis = jax.jit(lambda *a: f(*a)).lower(*args).compile().cost_analysis()
    assert analysis is not None
    return analysis["flops"]
