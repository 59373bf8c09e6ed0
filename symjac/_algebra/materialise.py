"""From terms to arrays: one contraction a term, and one pass over the final buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import IndexMap
from symjac._algebra.pieces import Piece, piece_of
from symjac._algebra.select import add_alike, select_of, sum_of_selects
from symjac._algebra.tangent import StructuredTangent
from symjac._algebra.write import Updates, add_block, gather_small, join_blocks, scatter, updates_of

# Up to this many elements a result with several pieces is read from a list of its values by one gather.
_SMALL = 512
# Blocks up to this many elements go into a scatter that is needed anyway.
_SMALL_BLOCK = 64
# More selects than this over the whole result cost more than scattering a few values.
_MOST_SELECTS = 8
# A loop over an axis shorter than this is not vectorised.
_SHORT_AXIS = 8
# To scatter one entry takes about as long as to look at this many in an elementwise loop; and at so many where they
# have to be read for that.
_SCATTER_COST = 64
_SCATTER_COST_ON_BASE = 16


def materialise(tangent: StructuredTangent, leaf: int, *, transposed: bool = False) -> Any:
    """The dense Jacobian of a tangent with respect to one input leaf.

    Args:
        tangent: The structured tangent.
        leaf: The number of the input leaf.
        transposed: Whether the in axes come first.

    Returns:
        An array of shape ``tangent.shape + in_shape``; a factor itself where the Jacobian is exactly that array.
    """
    in_shape = tangent.in_shapes[leaf]
    shape = (*in_shape, *tangent.shape) if transposed else (*tangent.shape, *in_shape)
    terms = tangent.blocks[leaf]
    axes = [term.in_axes + term.out_axes if transposed else term.axes for term in terms]
    return assemble([term.factors for term in terms], axes, shape, tangent.dtype)


def assemble(
    factors: Sequence[Sequence[Factor]],
    axes: Sequence[Sequence[IndexMap]],
    shape: Sequence[int],
    dtype: Any,
) -> Any:
    """The sum of terms as a dense array of the given shape.

    Args:
        factors: The factors of each term.
        axes: The axes of each term.
        shape: The shape of the result.
        dtype: Its dtype.
    """
    shape, dtype = tuple(shape), np.dtype(dtype)
    if not factors or 0 in shape:
        return jnp.zeros(shape, dtype)
    pieces = [piece_of(f, tuple(a), dtype) for f, a in zip(factors, axes, strict=True)]
    whole = [piece.values for piece in pieces if piece.is_block and np.shape(piece.values) == shape]
    rest = [piece for piece in pieces if not (piece.is_block and np.shape(piece.values) == shape)]
    base = whole[0] if whole else None
    for values in whole[1:]:
        base = add_alike(jnp.asarray(base), jnp.asarray(values))
    if not rest:
        return base if not isinstance(base, np.ndarray | np.generic) else jnp.asarray(base)
    joined = join_blocks(rest, shape, dtype) if base is None and _is_one_cpu() else None
    if joined is not None:
        return joined
    if _prefers_selects(rest, shape, has_base=base is not None):
        selects = [select for select in map(select_of, rest) if select is not None]
        if len(selects) == len(rest):
            total = sum_of_selects(selects, shape, dtype)
            return total if base is None else add_alike(jnp.asarray(base), total)
    if base is None and math.prod(shape) <= _SMALL and len(rest) > 1:
        small = gather_small(rest, shape, dtype)
        if small is not None:
            return small
    return _write(base, rest, shape, dtype)


def _prefers_selects(pieces: Sequence[Piece], shape: Sequence[int], *, has_base: bool) -> bool:
    """Whether selects are the better way to write the pieces.

    They are one loop over the result, which compiles fast and follows the shards of the values. On one CPU a scatter
    touches fewer entries, which counts most where the others are there already, and copies a window at once where the
    loop would be over a short axis.
    """
    if len(pieces) > _MOST_SELECTS:
        return False
    if not _is_one_cpu():
        return True
    if len(pieces) == 1 and pieces[0].windows and not pieces[0].is_block and shape[-1] < _SHORT_AXIS:
        return False
    entries = sum(int(np.size(piece.values)) for piece in pieces)
    if has_base:
        return entries * _SCATTER_COST_ON_BASE >= math.prod(shape)
    return entries * _SCATTER_COST >= math.prod(shape) or (len(pieces) == 1 and not pieces[0].windows)


def _is_one_cpu() -> bool:
    return len(jax.devices()) == 1 and jax.default_backend() == "cpu"


def _write(base: Any, pieces: Sequence[Piece], shape: tuple[int, ...], dtype: Any) -> Any:
    """Writes blocks one by one, and all other pieces by one scatter for each shape of window."""
    filled: list[list[tuple[int, int]]] | None = [] if base is None else None
    base = jnp.zeros(shape, dtype) if base is None else jnp.asarray(base)
    groups: dict[tuple[int, ...], list[Updates]] = {}
    scattered = any(not piece.is_block for piece in pieces)
    for piece in pieces:
        if piece.is_block and not (scattered and np.size(piece.values) <= _SMALL_BLOCK):
            base = add_block(base, piece, filled)
        else:
            updates = updates_of(piece)
            groups.setdefault(updates.window, []).append(updates)
    fresh = filled == []
    for window, group in groups.items():
        base = scatter(base, window, group, fresh=fresh)
        fresh = False
    return base
