"""From terms to arrays: one contraction a term, and one pass over the final buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import IndexMap
from symjac._algebra.pieces import Piece, piece_of
from symjac._algebra.tangent import StructuredTangent
from symjac._algebra.write import Updates, add_block, gather_small, scatter, select_form, updates_of, write_selects

# Up to this many elements a result with several pieces is read from a list of its values by one gather.
_SMALL = 512
# Blocks up to this many elements go into a scatter that is needed anyway.
_SMALL_BLOCK = 64
# More selects than this over the whole result cost more than scattering a few values.
_MOST_SELECTS = 8
# To scatter one entry takes about as long as to look at this many in an elementwise loop.
_SCATTER_COST = 64


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
    *,
    in_loop: bool = False,
) -> Any:
    """The sum of terms as a dense array of the given shape.

    Args:
        factors: The factors of each term.
        axes: The axes of each term.
        shape: The shape of the result.
        dtype: Its dtype.
        in_loop: Whether it is computed in each step of a loop, where the whole result is written anyway.
    """
    shape, dtype = tuple(shape), np.dtype(dtype)
    if not factors or 0 in shape:
        return jnp.zeros(shape, dtype)
    pieces = [piece_of(f, tuple(a), dtype) for f, a in zip(factors, axes, strict=True)]
    whole = [piece.values for piece in pieces if piece.is_block and np.shape(piece.values) == shape]
    rest = [piece for piece in pieces if not (piece.is_block and np.shape(piece.values) == shape)]
    base = whole[0] if whole else None
    for values in whole[1:]:
        base = lax.add(jnp.asarray(base), jnp.asarray(values))
    if not rest:
        return base if not isinstance(base, np.ndarray | np.generic) else jnp.asarray(base)
    if base is None and math.prod(shape) <= _SMALL and len(rest) > 1:
        small = gather_small(rest, shape, dtype)
        if small is not None:
            return small
    if _prefers_selects(rest) or (in_loop and _are_many(rest, shape)):
        forms = [form for form in map(select_form, rest) if form is not None]
        if len(forms) == len(rest):
            return write_selects(base if base is None else jnp.asarray(base), forms, shape, dtype)
    return _write(base, rest, shape, dtype)


def _prefers_selects(pieces: Sequence[Piece]) -> bool:
    """Whether selects are the better way to write the pieces.

    They are one loop over the result, follow its shards and compile fast; on one CPU a scatter touches fewer entries.
    """
    if len(jax.devices()) == 1 and jax.default_backend() == "cpu":
        return len(pieces) == 1 and not pieces[0].windows
    return len(pieces) <= _MOST_SELECTS


def _are_many(pieces: Sequence[Piece], shape: Sequence[int]) -> bool:
    """Whether to scatter the entries of the pieces takes longer than one more look at each entry of the result."""
    entries = sum(int(np.size(piece.values)) for piece in pieces)
    return len(pieces) <= _MOST_SELECTS and entries * _SCATTER_COST >= math.prod(shape)


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
