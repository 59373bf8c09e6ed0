"""Fourier transforms: they act on one axis after the other, and keep the deltas of the others.

A transform of a delta gives waves, the columns of its matrix. They are remembered as such, for the transform back of
waves times a symbol (what a derivative or a filter multiplies the spectrum with) is that of the symbol, moved to where
each wave came from: a circulant matrix, read from one column instead of transformed column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import NotImplementedType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from symjac._algebra.factor import Factor, scalar
from symjac._algebra.index_map import Indexed, Label, plain, spread
from symjac._algebra.tangent import StructuredTangent, Term
from symjac._engine.acting import Action, act, cast_action, is_free
from symjac._engine.interpreter import register

_UNDONE = {
    lax.FftType.IFFT: lax.FftType.FFT,
    lax.FftType.FFT: lax.FftType.IFFT,
    lax.FftType.IRFFT: lax.FftType.RFFT,
}
"""The transform that a transform undoes."""


@dataclass(frozen=True)
class Waves:
    """A factor that is the transform of a delta: ``exp(-2 pi i frequency * position / length)``, or its inverse.

    Attributes:
        kind: The transform.
        length: Its length.
        axis: The axis of the factor that the frequency is.
        positions: Where along the transformed axis each wave came from, an array over the other axes of the factor.
    """

    kind: lax.FftType
    length: int
    axis: int
    positions: Any


@register(lax.fft_p)
def _fft_rule(x: StructuredTangent, *, fft_type: Any, fft_lengths: Sequence[int]) -> StructuredTangent:
    """One transform after the other, each along one axis: an identity gives the matrix of each. Keeps other deltas."""
    kind = lax.FftType(fft_type) if not isinstance(fft_type, str) else lax.FftType[fft_type]
    first = len(x.shape) - len(fft_lengths)
    real = {lax.FftType.RFFT: lax.FftType.FFT, lax.FftType.IRFFT: lax.FftType.IFFT}
    steps = [(first + i, real.get(kind, kind), n) for i, n in enumerate(fft_lengths)]
    if kind in real:
        steps[-1] = (steps[-1][0], kind, fft_lengths[-1])
    for axis, step, length in reversed(steps) if kind == lax.FftType.RFFT else steps:
        x = _along(x, axis, step, length)
        if x is NotImplemented:
            return NotImplemented
    return x


def _along(x: StructuredTangent, axis: int, kind: lax.FftType, length: int) -> StructuredTangent:
    def transform(rows: Any) -> Any:
        return lax.fft(rows, kind, (length,))

    def of_term(term: Term, act_on: Callable[[Term], Any]) -> Term | NotImplementedType:
        waves = _waves_along(term, axis, kind, length)
        if waves is not None:
            return _moved(waves, term, axis, act_on)
        return _remembered(term, act_on(term), axis, kind, length)

    size, dtype, complex_linear = length, None, True
    if kind == lax.FftType.RFFT:
        size, dtype = length // 2 + 1, np.result_type(x.dtype, np.complex64)
    elif kind == lax.FftType.IRFFT:
        dtype, complex_linear = np.dtype(np.float64 if x.dtype == np.complex128 else np.float32), False
    options: dict[str, Any] = {"columns_first": True, "dtype": dtype, "complex_linear": complex_linear}
    return act(x, Action(cast_action(transform, x.dtype), (axis,), (size,), **options), of_term)


def _remembered(
    before: Term, after: Term | NotImplementedType, axis: int, kind: lax.FftType, length: int
) -> Term | NotImplementedType:
    """The term after a transform, where its last factor remembers that it is waves if the transform met a delta."""
    if after is NotImplemented or kind == lax.FftType.IRFFT:
        return after
    own, frequency, result = before.out_axes[axis], after.out_axes[axis].labels[0], after.factors[-1]
    labels = tuple(label for label in result.labels if label is not frequency)
    is_alone = after.factors[:-1] == before.factors and set(labels) == set(own.labels) and bool(labels)
    if not is_alone or not own.stays_inside or own.size != length:
        return after
    waves = Waves(kind, length, result.labels.index(frequency), spread(own.index(), own.labels, labels))
    return replace(after, factors=(*after.factors[:-1], replace(result, origin=(waves, result.array))))


def _waves_along(term: Term, axis: int, kind: lax.FftType, length: int) -> Factor | None:
    """The factor of waves along an axis that a transform back meets."""
    for factor in term.factors if is_free(term, axis) else ():
        waves = _origin(factor)
        if waves is not None and waves.length == length and waves.kind == _UNDONE.get(kind):
            if factor.labels[waves.axis] is term.out_axes[axis].labels[0]:
                return factor
    return None


def _origin(factor: Factor) -> Waves | None:
    """What a factor is the transform of, unless its array was changed since."""
    waves, array = factor.origin or (None, None)
    return waves if array is factor.array else None


def _moved(factor: Factor, term: Term, axis: int, act_on: Callable[[Term], Any]) -> Term | NotImplementedType:
    """Transforms what stands beside the waves, and moves the result to where each wave came from."""
    waves = _origin(factor)
    assert waves is not None
    origins = tuple(label for label in factor.labels if label is not factor.labels[waves.axis])
    beside = tuple(f for f in term.factors if f is not factor)
    # What the waves have in common with what stands beside them is not to be summed over without them.
    done = act_on(replace(term, factors=beside, in_axes=(*term.in_axes, *map(plain, origins))))
    if done is NotImplemented:
        return NotImplemented
    moved, place = done.out_axes[axis].labels[0], Label(waves.length)
    own = lax.broadcasted_iota(np.int32, (waves.length, *(1 for _ in origins)), 0)
    shift = own - jnp.asarray(waves.positions, np.int32)[None]
    index = lax.select(shift < 0, shift + np.int32(waves.length), shift)
    index_map = Indexed(waves.length, index, (place, *origins), stays_inside=True)
    factors = [each.substitute({moved: index_map}) for each in done.factors]
    out_axes = (*done.out_axes[:axis], plain(place), *done.out_axes[axis + 1 :])
    done = Term(tuple(factors), out_axes, term.in_axes)
    return done.times(scalar(1 / waves.length, factors[-1].dtype)) if waves.kind == lax.FftType.IFFT else done
