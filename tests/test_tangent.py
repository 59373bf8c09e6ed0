"""Each operation on a term commutes with making the term dense; a term is made dense here by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import SIZES, dense, index_maps, terms, values

from symjac._algebra.index_map import Label, plain
from symjac._algebra.tangent import Term, identity, zero

few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SHAPES = st.lists(SIZES, min_size=1, max_size=2).map(tuple)


def same(term, expected):
    got = dense(term) if isinstance(term, Term) else np.zeros_like(expected)
    np.testing.assert_array_equal(got, expected)


@st.composite
def cases(draw):
    out_shape, in_shape = draw(SHAPES), draw(SHAPES)
    return out_shape, draw(terms(out_shape, in_shape))


@few
@given(cases(), st.data())
def test_transpose(case, data):
    shape, term = case
    permutation = data.draw(st.permutations(range(len(shape))))
    rest = range(len(shape), len(term.axes))
    same(term.transpose(permutation), np.transpose(dense(term), (*permutation, *rest)))


@few
@given(cases(), st.data())
def test_sum_axes(case, data):
    shape, term = case
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    same(term.sum_axes(axes), dense(term).sum(tuple(axes)))


@few
@given(cases(), st.data())
def test_broadcast(case, data):
    shape, term = case
    sizes = [data.draw(st.integers(1, 3)) if n == 1 else n for n in shape]
    lead = data.draw(st.integers(1, 2))
    expected = np.broadcast_to(dense(term)[None], (lead, *sizes, *dense(term).shape[len(shape) :]))
    same(term.broadcast((lead, *sizes), range(1, len(shape) + 1)), expected)


@few
@given(cases(), st.data())
def test_restrict(case, data):
    shape, term = case
    axis = data.draw(st.integers(0, len(shape) - 1))
    stride = data.draw(st.sampled_from([1, 2, -1, -2]))
    positions = list(range(shape[axis])[::stride])
    start = data.draw(st.integers(0, len(positions) - 1))
    count = data.draw(st.integers(1, len(positions) - start))
    taken = positions[start : start + count]
    same(term.restrict(axis, taken[0], stride, count), np.take(dense(term), taken, axis))


@few
@given(cases(), st.data())
def test_place(case, data):
    shape, term = case
    axis = data.draw(st.integers(0, len(shape) - 1))
    offset, size, scale = data.draw(st.integers(-2, 3)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2))
    old = np.moveaxis(dense(term), axis, 0)
    expected = np.zeros((size, *old.shape[1:]))
    for i, row in enumerate(old):
        if 0 <= scale * i + offset < size:
            expected[scale * i + offset] += row
    same(term.place(axis, offset, size, scale), np.moveaxis(expected, 0, axis))


@few
@given(SHAPES, st.data())
def test_reshape(in_shape, data):
    old = data.draw(st.sampled_from([(2, 3), (6,), (1, 2, 3), (3, 2, 1), (2, 1, 2), (4,), (2, 2, 3), (4, 3), (2, 6)]))
    new = data.draw(st.sampled_from([s for s in SHAPES_BY_SIZE if np.prod(s) == np.prod(old)]))
    term = data.draw(terms(old, in_shape, labels=[Label(data.draw(st.sampled_from([1, 2, 3, 6]))) for _ in range(2)]))
    same(term.reshape(old, new), dense(term).reshape((*new, *in_shape)))


SHAPES_BY_SIZE = [(6,), (2, 3), (3, 2), (1, 6), (6, 1), (4,), (2, 2), (1, 4), (12,), (3, 4), (4, 3), (2, 6), (2, 3, 2)]


@few
@given(cases(), st.data())
def test_read(case, data):
    shape, term = case
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    fresh = [Label(data.draw(SIZES)) for _ in range(2)]
    positions = {axis: data.draw(index_maps(shape[axis], fresh)) for axis in axes}
    read = term.read(positions)
    if read is NotImplemented:
        return
    result = Term(read.factors, (*map(plain, fresh), *read.out_axes), read.in_axes)
    old = np.moveaxis(dense(term), axes, range(len(axes)))
    expected = np.zeros((fresh[0].size, fresh[1].size, *old.shape[len(axes) :]))
    for i in range(fresh[0].size):
        for j in range(fresh[1].size):
            at = {fresh[0]: i, fresh[1]: j}
            place = [int(np.asarray(positions[a].index())[tuple(at[x] for x in positions[a].labels)]) for a in axes]
            if all(0 <= p < shape[a] for p, a in zip(place, axes, strict=True)):
                expected[i, j] = old[tuple(place)]
    same(result, expected)


@few
@given(cases(), st.data())
def test_scaled_divided_and_masked(case, data):
    shape, term = case
    sizes = [data.draw(st.sampled_from([1, n])) for n in shape]
    array = np.asarray(values(data.draw, sizes))
    grown = array.reshape(*sizes, *(1,) * (len(term.axes) - len(shape)))
    same(term.scaled(array), dense(term) * grown)
    same(term.masked(array > 0), dense(term) * (grown > 0))
    same(term.divided(np.where(array > 0, 2, 0.5).astype(np.float32)), dense(term) / np.where(grown > 0, 2, 0.5))


@few
@given(cases())
def test_swapped(case):
    shape, term = case
    n, rank = len(shape), len(term.axes)
    same(term.swapped(), np.transpose(dense(term), (*range(n, rank), *range(n))))


@few
@given(cases(), st.data())
def test_substitute_a_plain_label(case, data):
    """Reading every axis at another map of a plain label is `read`; here it is done by hand."""
    _, term = case
    chosen = [i for i, axis in enumerate(term.out_axes) if axis.is_plain]
    if not chosen:
        return
    (label,) = term.out_axes[chosen[0]].labels
    fresh = Label(2)
    position = data.draw(index_maps(label.size, [fresh]))
    got = term._without_axes([chosen[0]]).substitute({label: position})
    result = Term(got.factors, (plain(fresh), *got.out_axes), got.in_axes)
    index = np.broadcast_to(np.asarray(position.index()), (2,) if position.labels else ())
    index = np.broadcast_to(index, (2,))
    old = np.moveaxis(dense(term), chosen[0], 0)
    rows = [old[i] if 0 <= i < label.size else np.zeros_like(old[0]) for i in index]
    same(result, np.stack(rows))


def test_identity_and_zero():
    tangent = identity(1, np.float32, ((2,), (3, 2)))
    assert tangent.blocks[0] == () and tangent.shape == (3, 2)
    np.testing.assert_array_equal(dense(tangent.blocks[1][0]).reshape(6, 6), np.eye(6))
    assert zero((2,), np.float32, ((2,),)).is_zero
    assert identity(0, np.float32, ((0, 2),)).is_zero


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_masked_drops_what_is_not_finite(bad):
    tangent = identity(0, np.float32, ((3,),))
    term = tangent.blocks[0][0].scaled(np.array([1, bad, 2], np.float32)).masked(np.array([True, False, True]))
    np.testing.assert_array_equal(dense(term), np.diag([1.0, 0.0, 2.0]))
