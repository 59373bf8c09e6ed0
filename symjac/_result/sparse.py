"""Sparse matrices from a structured Jacobian, and the picture of its pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import sparse

from symjac._result.entries import Pattern, pattern_of, stored_values, traced_entries
from symjac._result.stored import Layout, has_traced_indices, with_static_indices

_MOST_PIXELS = 500
"""A larger matrix is drawn as a picture of this many pixels a side, each as dark as its share of entries."""


def _is_traced(arrays: Sequence[Any]) -> bool:
    return any(isinstance(array, Tracer) for array in arrays)


def to_bcoo(layout: Layout, arrays: Sequence[Any]) -> sparse.BCOO:
    """A sorted BCOO matrix without duplicates or explicit structural zeros."""
    if has_traced_indices(layout) and _is_traced(arrays):
        data, indices = traced_entries(layout, tuple(arrays))
    else:
        found = pattern_of(with_static_indices(layout, arrays))
        indices, _, _ = found.arrays()
        data = stored_values(layout, arrays, found)
    return sparse.BCOO((data, indices), shape=layout.shape, indices_sorted=True, unique_indices=True)


def concrete_pattern(layout: Layout, arrays: Sequence[Any], what: str) -> Pattern:
    """The positions of the entries.

    Raises:
        TypeError: where they depend on values that are being traced.
    """
    if has_traced_indices(layout) and _is_traced(arrays):
        raise TypeError(f"{what} needs the positions of the entries, which depend on index arrays that are traced.")
    return pattern_of(with_static_indices(layout, arrays))


def to_scipy(layout: Layout, arrays: Sequence[Any]) -> Any:
    """A CSR array of SciPy."""
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise ImportError("Jacobian.to_scipy needs the package scipy, which is not installed.") from error
    if _is_traced(arrays):
        raise TypeError("Jacobian.to_scipy needs the values of the arrays, which are traced: call it outside of jit.")
    found = concrete_pattern(layout, arrays, "Jacobian.to_scipy")
    with jax.ensure_compile_time_eval():
        data = np.asarray(stored_values(layout, arrays, found))
    starts = np.zeros(layout.shape[0] + 1, np.int32)
    np.cumsum(np.bincount(found.indices[:, 0], minlength=layout.shape[0]), out=starts[1:])
    if data.dtype.kind not in "fc":  # SciPy knows no bfloat16.
        data = data.astype(np.float32)
    return csr_array((data, np.array(found.indices[:, 1]), starts), shape=layout.shape)


def spy(layout: Layout, arrays: Sequence[Any], ax: Any = None) -> Any:
    """Draws the pattern, and returns the axes."""
    if ax is None:
        try:
            from matplotlib import pyplot  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError("Jacobian.spy needs the package matplotlib, which is not installed.") from error
        ax = pyplot.gca()
    n_rows, n_columns = layout.shape
    found = concrete_pattern(layout, arrays, "Jacobian.spy")
    height, width = (max(1, min(n, _MOST_PIXELS)) for n in (n_rows, n_columns))
    row = found.indices[:, 0].astype(np.int64) * height // max(n_rows, 1)
    column = found.indices[:, 1].astype(np.int64) * width // max(n_columns, 1)
    counts = np.bincount(row * width + column, minlength=height * width).reshape(height, width)
    extent = (-0.5, n_columns - 0.5, n_rows - 0.5, -0.5)
    options = {"cmap": "Greys", "interpolation": "nearest", "aspect": "auto", "vmin": 0, "vmax": 1}
    ax.imshow(np.minimum(counts, 1), extent=extent, **options)
    ax.set_xlabel(f"{n_columns} columns, {found.nse} entries")
    ax.set_ylabel(f"{n_rows} rows")
    return ax
