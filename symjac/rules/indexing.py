"""Gather, scatter and their dynamic kin: index maps from arrays of indices.

The positions that an equation reads or writes are computed once, and are the same arrays for all terms and for all
equations with the same indices, so that terms which take the same entries still share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import GatherScatterMode

from symjac._algebra.factor import cast, scalar
from symjac._algebra.index_map import Affine, IndexMap, Label, compose, indexed, is_static, plain
from symjac._algebra.materialise import assemble
from symjac._algebra.merge import add_tangents, densify
from symjac._algebra.reading import solve
from symjac._algebra.tangent import StructuredTangent, Term, replace
from symjac._engine.bounds import fills_with, read_mode, write_mode
from symjac._engine.dense import write_in_place
from symjac._engine.interpreter import register
from symjac._engine.sharing import shared

# What of the dimension numbers of a scatter are numbers of axes of the operand, or of the updates.
_OF_SCATTER = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "operand_batching_dims")


@dataclass(frozen=True)
class _Window:
    """Where the windows of a gather or scatter lie.

    Attributes:
        batch: A label for each axis of the indices but the last.
        within: A label for each operand axis: the place within the window. Axes that are not in the window have none.
        positions: The map of each operand axis; axes that are taken whole have none.
    """

    batch: tuple[Label, ...]
    within: dict[int, Label]
    positions: dict[int, IndexMap]


@register(lax.gather_p)
def _gather_rule(
    x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: Sequence[int], mode: Any, fill_value: Any, **_: Any
) -> StructuredTangent:
    """J'[b, w, p] = J[start[b] + w, p]: reads out axes at positions given by arrays.

    Keeps every delta but those of an axis that cannot be solved for its labels (a traced scatter), which becomes dense.
    """
    numbers = dimension_numbers
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    fills, fill_value = read_mode(mode) == GatherScatterMode.FILL_OR_DROP, fills_with(fill_value)
    spoils = fills and (fill_value is None or fill_value != 0)
    columns, collapsed = numbers.start_index_map, numbers.collapsed_slice_dims
    window = _window(x.shape, slice_sizes, indices, columns, batching, collapsed, clipped=spoils or not fills)
    kept = [d for d in range(len(x.shape)) if d not in numbers.collapsed_slice_dims and d not in batching]
    order = _interleaved(len(window.batch), numbers.offset_dims)
    sizes = [*(label.size for label in window.batch), *(slice_sizes[d] for d in kept)]

    def rebuild(term: Term, untouched: Mapping[int, IndexMap]) -> Term:
        axes: list[IndexMap] = [plain(label) for label in window.batch]
        axes += [untouched[d] if d in untouched else plain(window.within[d]) for d in kept]
        return replace(term, out_axes=tuple(axes[i] for i in order))

    gone = [d for d in range(len(x.shape)) if d not in kept and d not in window.positions]
    taken = read_at(x, window.positions, gone, rebuild, [sizes[i] for i in order])
    if not spoils:
        return taken
    rooms = [x.shape[d] - slice_sizes[d] for d in columns]
    return _spoilt(taken, _starts(indices, rooms, False)[1], numbers.offset_dims, fill_value)


def _spoilt(taken: StructuredTangent, valid: Any, offset_dims: Sequence[int], fill_value: Any) -> StructuredTangent:
    """Multiplies what is filled by the value, usually NaN, that a gather of a tangent itself fills with."""
    if valid is None:
        return taken
    fill = np.asarray(np.nan if fill_value is None else fill_value, taken.dtype)
    array = jnp.where(valid, np.ones_like(fill), fill)
    return taken.scaled(lax.expand_dims(array, offset_dims))


def _interleaved(n_batch: int, offset_dims: Sequence[int]) -> list[int]:
    """For each axis of a gather's result, or of a scatter's updates, its place in (*batch axes, *window axes)."""
    batch, window = iter(range(n_batch)), iter(range(n_batch, n_batch + len(offset_dims)))
    return [next(window) if i in offset_dims else next(batch) for i in range(n_batch + len(offset_dims))]


def read_at(
    x: StructuredTangent, positions: Mapping[int, IndexMap], gone: Sequence[int], rebuild: Any, shape: Sequence[int]
) -> StructuredTangent:
    """Reads out axes of every term, after those that cannot be solved for their labels were made dense.

    Args:
        x: The tangent.
        positions: The positions at which each of some out axes is read.
        gone: Out axes of size 1 that are dropped.
        rebuild: From the term without those axes, and a dict of its other out axes, to the new term.
        shape: The new shape.
    """
    probe = Affine(1, 0, ())
    hard = [
        axis
        for axis in positions
        if any(solve(term.out_axes[axis], probe) is NotImplemented for block in x.blocks for term in block)
    ]
    if hard:
        x = densify(x, hard)
    others = [d for d in range(len(x.shape)) if d not in positions and d not in gone]

    def apply(term: Term) -> Term:
        moved = sorted((*positions, *others))
        lean = term.sum_axes(gone)
        read = lean.read({moved.index(axis): index_map for axis, index_map in positions.items()})
        assert isinstance(read, Term)
        return rebuild(read, dict(zip(others, read.out_axes, strict=True)))

    result = x.map(apply, shape=shape)
    assert isinstance(result, StructuredTangent)
    return result


def _window(
    shape: Sequence[int],
    sizes: Sequence[int],
    indices: Any,
    columns: Sequence[int],
    batching: Mapping[int, int],
    collapsed: Sequence[int],
    clipped: bool,
) -> _Window:
    """The positions of windows of given sizes in an operand.

    Args:
        shape: The shape of the operand.
        sizes: The size of the window along each operand axis.
        indices: The array of starts; its last axis goes over `columns`.
        columns: The operand axes that the starts are for.
        batching: The batch axis of the indices that each batching axis of the operand goes along with.
        collapsed: The operand axes that are not in the window.
        clipped: Whether starts are moved inside; else windows that start outside are dropped.
    """
    batch = tuple(Label(n) for n in np.shape(indices)[:-1])
    within = {d: Label(n) for d, n in enumerate(sizes) if d not in collapsed and d not in batching}
    positions: dict[int, IndexMap] = {d: plain(batch[j]) for d, j in batching.items()}
    rooms = [shape[d] - sizes[d] for d in columns]
    starts, valid = shared(("starts", tuple(rooms), clipped), [indices], lambda: _starts(indices, rooms, clipped))
    whole = all(valid is None or room == 0 for room in rooms)
    for start, room, d in zip(starts, rooms, columns, strict=True):
        if room == 0 and (valid is None or not whole):
            continue  # taken whole: another axis drops what starts outside
        positions[d] = _position(shape[d], sizes[d], start, valid, batch, within.get(d))
    for d, label in within.items():
        if d not in columns and label.size != shape[d]:
            positions[d] = Affine(shape[d], 0, ((label, 1),))
    return _Window(batch, within, positions)


def _starts(indices: Any, rooms: Sequence[int], clipped: bool) -> tuple[list[Any], Any | None]:
    """The clamped starts along each indexed axis, and which of them were inside (None where all are, or count as)."""
    starts, valid = [], None
    for column, room in enumerate(rooms):
        index = indices[..., column] if is_static(indices) else lax.index_in_dim(indices, column, -1, keepdims=False)
        index = index if np.dtype(index.dtype).itemsize > 4 or index.dtype == np.uint32 else cast(index, np.int32)
        numpy = np if is_static(index) else jnp
        if not clipped:
            inside = (index >= 0) & (index <= room)
            valid = inside if valid is None else valid & inside
        starts.append(cast(numpy.clip(index, 0, room), np.int32))
    if valid is not None and is_static(valid) and valid.all():
        valid = None
    return starts, valid


def _position(
    size: int, width: int, start: Any, valid: Any | None, batch: tuple[Label, ...], label: Label | None
) -> IndexMap:
    """The map ``start[batch] + label`` into an axis; what is not valid leads nowhere."""

    def compute() -> Any:
        index, inside = start, valid
        if width > 1:
            index = index[..., None] + np.arange(width, dtype=np.int32)
            inside = None if inside is None else inside[..., None]
        if inside is None:
            return index
        return (np.where if is_static(index) and is_static(inside) else jnp.where)(inside, index, np.int32(-1))

    labels = batch if width <= 1 or label is None else (*batch, label)
    array = shared(("position", width), [start, *([] if valid is None else [valid])], compute)
    return indexed(size, array, labels, stays_inside=valid is None)


# -- scatter ---------------------------------------------------------------------------------------------------------


def _scatter_window(
    shape: Sequence[int], indices: Any, updates_shape: Sequence[int], numbers: Any, mode: Any
) -> _Window:
    """The positions that a scatter writes; only in clip mode are starts moved inside."""
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    inserted = numbers.inserted_window_dims
    widths = iter(numbers.update_window_dims)
    sizes = [1 if d in inserted or d in batching else updates_shape[next(widths)] for d in range(len(shape))]
    clipped = write_mode(mode) == GatherScatterMode.CLIP
    return _window(shape, sizes, indices, numbers.scatter_dims_to_operand_dims, batching, inserted, clipped)


def _placed(updates: StructuredTangent, window: _Window, numbers: Any, shape: Sequence[int]) -> StructuredTangent:
    """The tangent of updates written into zeros."""
    order = _interleaved(len(window.batch), numbers.update_window_dims)
    labels = [*window.batch, *window.within.values()]
    maps = [
        window.positions.get(d) or (plain(window.within[d]) if d in window.within else Affine(n, 0, ()))
        for d, n in enumerate(shape)
    ]
    return write_at(updates, [labels[place] for place in order], maps, shape)


def write_at(
    x: StructuredTangent, labels: Sequence[Label], maps: Sequence[IndexMap], shape: Sequence[int]
) -> StructuredTangent:
    """The sum of the entries of a tangent that are written to each position of zeros.

    Args:
        x: The tangent.
        labels: A label for each of its axes.
        maps: The position along each new axis for the values of those labels.
        shape: The new shape.
    """
    used = {label for index_map in maps for label in index_map.labels}
    summed = [i for i, label in enumerate(labels) if label not in used]
    kept = [label for label in labels if label in used]

    def apply(term: Term) -> Term:
        term = term.sum_axes(summed)
        inner = dict(zip(kept, term.out_axes, strict=True))
        return replace(term, out_axes=tuple(compose(m, inner) for m in maps)).counted(term.labels)

    result = x.map(apply, shape=shape)
    assert isinstance(result, StructuredTangent)
    return result


def _untouched(window: _Window, shape: Sequence[int]) -> Any:
    """True where no window lies; of size 1 along axes that are taken whole."""
    positions = [window.positions.get(d, Affine(1, 0, ())) for d in range(len(shape))]
    sizes = [position.size for position in positions]
    if all(isinstance(p, Affine) or is_static(p.index()) for p in positions):
        taken = np.zeros([n + 1 for n in sizes], bool)
        labels = list({label: None for p in positions for label in p.labels})
        grid = np.indices([label.size for label in labels], sparse=True) if labels else ()
        at = []
        for p, n in zip(positions, sizes, strict=True):
            index = p.index()[tuple(grid[labels.index(label)] for label in p.labels)]
            at.append(np.where((index >= 0) & (index < n), index, n))
        taken[tuple(at)] = True
        return ~taken[tuple(slice(n) for n in sizes)]
    return assemble([()], [positions], sizes, np.int32) == 0


@register(lax.scatter_add_p)
def _scatter_add_rule(x: Any, indices: Any, updates: Any, **params: Any) -> StructuredTangent:
    """The operand's terms, and those of the updates with out axes given by arrays. Keeps every delta."""
    return _scattered_sum(lax.scatter_add, x, indices, updates, **params)


@register(lax.scatter_sub_p)
def _scatter_sub_rule(x: Any, indices: Any, updates: Any, **params: Any) -> StructuredTangent:
    """The operand's terms, and the negated ones of the updates, as in scatter-add. Keeps every delta."""
    return _scattered_sum(lax.scatter_sub, x, indices, updates, **params)


def _scattered_sum(function: Any, x: Any, indices: Any, updates: Any, **params: Any) -> StructuredTangent:
    parts = [x] if isinstance(x, StructuredTangent) else []
    if isinstance(updates, StructuredTangent):
        written = _scattered_in_place(function, x, indices, updates, **params)
        if written is not None:
            return written
        numbers = params["dimension_numbers"]
        window = _scatter_window(np.shape(x), indices, updates.shape, numbers, params["mode"])
        placed = _placed(updates, window, numbers, np.shape(x))
        if function is lax.scatter_sub:
            placed = placed.map(lambda term: term.times(scalar(-1, updates.dtype)))
        parts.append(placed)
    return add_tangents(parts)


@register(lax.scatter_p)
def _scatter_rule(x: Any, indices: Any, updates: Any, **params: Any) -> StructuredTangent:
    """The operand's terms zeroed where something is written, and the updates' terms there. Keeps every delta."""
    shape, numbers, mode = np.shape(x), params["dimension_numbers"], params["mode"]
    written = _scattered_in_place(lax.scatter, x, indices, updates, **params)
    if written is not None:
        return written
    window = _scatter_window(shape, indices, np.shape(updates), numbers, mode)
    parts = []
    if isinstance(x, StructuredTangent):
        key = ("untouched", shape, np.shape(updates), numbers, mode)
        untouched = shared(key, [indices], lambda: _untouched(window, shape))
        parts.append(x.map(lambda term: term.masked(untouched)))
    if isinstance(updates, StructuredTangent):
        parts.append(_placed(updates, window, numbers, shape))
    return add_tangents(parts)


def _or_zero(update: Any) -> Any:
    """What is written into a tangent: an array in the place of a tangent is zero."""
    return update if isinstance(update, StructuredTangent) else jnp.zeros_like(update)


def _scattered_in_place(
    function: Any, x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, **params: Any
) -> StructuredTangent | None:
    """A scatter by traced indices into a tangent without structure; None where it is another one."""
    if is_static(indices):
        return None
    updates = jnp.asarray(updates) if function is lax.scatter_mul else _or_zero(updates)
    options = {name: params[name] for name in ("indices_are_sorted", "unique_indices", "mode")}

    def write(array: Any, new: Any, before: int) -> Any:
        moved = {name: tuple(d + before for d in getattr(dimension_numbers, name)) for name in _OF_SCATTER}
        windows = (*range(before), *moved.pop("update_window_dims"), *range(before + len(updates.shape), new.ndim))
        numbers = dimension_numbers._replace(update_window_dims=windows, **moved)
        return function(array, indices, new, numbers, **options)

    return write_in_place(x, updates, write)


@register(lax.scatter_mul_p)
def _scatter_mul_rule(x: Any, indices: Any, updates: Any, **params: Any) -> StructuredTangent:
    """J[s, p] c[s], where c is the updates scattered into ones. Keeps every delta; declines for tangent updates."""
    if not isinstance(x, StructuredTangent) or isinstance(updates, StructuredTangent):
        return NotImplemented
    written = _scattered_in_place(lax.scatter_mul, x, indices, updates, **params)
    if written is not None:
        return written
    ones = jnp.ones(x.shape, updates.dtype)
    return x.scaled(lax.scatter_mul_p.bind(ones, jnp.asarray(indices), jnp.asarray(updates), **params))


# -- dynamic slices --------------------------------------------------------------------------------------------------


def _start_maps(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]) -> _Window:
    """The positions of one window whose starts are moved inside, as XLA does."""
    within = {d: Label(n) for d, n in enumerate(sizes)}
    positions: dict[int, IndexMap] = {}
    for d, (n, size, start) in enumerate(zip(shape, sizes, starts, strict=True)):
        if n != size:
            first = shared(("start", n - size), [start], lambda s=start, room=n - size: _clamped(s, room))
            positions[d] = _position(n, size, first, None, (), within[d])
    return _Window((), within, positions)


def _clamped(start: Any, room: int) -> Any:
    start = np.asarray(start) if is_static(start) else start
    return _starts(start[..., None], [room], True)[0][0]


@register(lax.dynamic_slice_p)
def _dynamic_slice_rule(x: Any, *starts: Any, slice_sizes: Sequence[int]) -> StructuredTangent:
    """J'[w, p] = J[start + w, p]. Keeps every delta."""
    window = _start_maps(x.shape, slice_sizes, starts)

    def rebuild(term: Term, untouched: Mapping[int, IndexMap]) -> Term:
        axes = [untouched[d] if d in untouched else plain(window.within[d]) for d in range(len(x.shape))]
        return replace(term, out_axes=tuple(axes))

    return read_at(x, window.positions, [], rebuild, slice_sizes)


@register(lax.dynamic_update_slice_p)
def _dynamic_update_slice_rule(x: Any, update: Any, *starts: Any) -> StructuredTangent:
    """The operand's terms zeroed inside the window, and the update's terms moved there. Keeps every delta."""
    shape = np.shape(x)
    if not all(map(is_static, starts)):

        def write(array: Any, new: Any, before: int) -> Any:
            zeros = [jnp.zeros_like(starts[0])] * (array.ndim - len(starts))
            return lax.dynamic_update_slice(array, new, [*zeros[:before], *starts, *zeros[before:]])

        written = write_in_place(x, _or_zero(update), write)
        if written is not None:
            return written
    window = _start_maps(shape, np.shape(update), starts)
    parts = []
    if isinstance(x, StructuredTangent):
        untouched = _untouched(window, shape)
        parts.append(x.map(lambda term: term.masked(untouched)))
    if isinstance(update, StructuredTangent):
        labels = list(window.within.values())
        maps = [window.positions.get(d, plain(label)) for d, label in window.within.items()]
        parts.append(write_at(update, labels, maps, shape))
    return add_tangents(parts)
