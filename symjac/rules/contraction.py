"""Products and sums over axes: `dot_general` appends a factor, and cumulative sums act along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Label, plain
from symjac._algebra.tangent import StructuredTangent, Term
from symjac._engine.acting import along_axes
from symjac._engine.interpreter import register


@register(lax.dot_general_p)
def _dot_general_rule(
    x: Any, y: Any, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any, **_: Any
) -> StructuredTangent:
    """J'[b, m, n, p] = sum_k J[b, m, k, p] c[b, k, n]: appends c, its contracted and batch axes read along J's labels.

    Keeps the deltas of batch and free axes; declines for two tangents.
    """
    if isinstance(x, StructuredTangent) and isinstance(y, StructuredTangent):
        return NotImplemented
    on_left = isinstance(x, StructuredTangent)
    tangent, array = (x, y) if on_left else (y, x)
    contracting, batch = dimension_numbers
    own, other = (0, 1) if on_left else (1, 0)
    pairs = list(zip(contracting[own], contracting[other], strict=True))
    batched = list(zip(batch[own], batch[other], strict=True))
    taken = [i for i, _ in (*pairs, *batched)]
    free = [i for i in range(len(tangent.shape)) if i not in taken]
    fixed = [j for j in range(np.ndim(array)) if j not in [k for _, k in (*pairs, *batched)]]
    fresh = {j: Label(np.shape(array)[j]) for j in fixed}

    def apply(term: Term) -> Term:
        labels = {j: Label(np.shape(array)[j]) for _, j in (*pairs, *batched)} | fresh
        factor = Factor(array, tuple(labels[j] for j in range(np.ndim(array))), precision)
        read = {labels[j]: term.out_axes[i] for i, j in (*pairs, *batched)}
        renamed = {label: axis.labels[0] for label, axis in read.items() if axis.is_plain}
        if len(set(renamed.values())) == len(renamed):
            factor = factor.relabel(renamed)
            read = {label: axis for label, axis in read.items() if label not in renamed}
        factor = factor.substitute(read)
        own_free = [term.out_axes[i] for i in free]
        new_free = [plain(fresh[j]) for j in fixed]
        out_axes = [*(term.out_axes[i] for i, _ in batched), *(own_free + new_free if on_left else new_free + own_free)]
        return Term(term.factors, tuple(out_axes), term.in_axes).times(factor)

    own_shape, new_shape = [tangent.shape[i] for i in free], [np.shape(array)[j] for j in fixed]
    shape = [*(tangent.shape[i] for i, _ in batched), *(own_shape + new_shape if on_left else new_shape + own_shape)]
    dtype = np.promote_types(tangent.dtype, array.dtype) if preferred_element_type is None else preferred_element_type
    return tangent.map(apply, shape=shape, dtype=dtype)


@register(lax.cumsum_p)
def _cumsum_rule(x: StructuredTangent, *, axis: int, reverse: bool) -> StructuredTangent:
    """Acts along one axis, which becomes dense. Keeps the deltas of the others."""
    return along_axes(x, [axis], lambda row: lax.cumsum(row, 0, reverse))
