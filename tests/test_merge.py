"""Sums of terms equal the sums of their arrays, whatever is merged."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import SIZES, dense, dense_sum, tangent_of, tangents, terms

from symjac._algebra.align import align
from symjac._algebra.index_map import Affine, Label, plain
from symjac._algebra.merge import add_tangents, densify, join, settle
from symjac._algebra.tangent import Term, identity

few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SHAPES = st.lists(SIZES, min_size=1, max_size=2).map(tuple)


@few
@given(SHAPES, SHAPES, st.data())
def test_add_tangents(out_shape, in_shape, data):
    parts = [data.draw(tangents(out_shape, in_shape, most=2)) for _ in range(2)]
    total = add_tangents(parts)
    shape = (*out_shape, *in_shape)
    expected = sum(dense_sum(part.blocks[0], shape) for part in parts)
    np.testing.assert_array_equal(dense_sum(total.blocks[0], shape), expected)


@few
@given(SHAPES, SHAPES, st.data())
def test_join_of_what_is_aligned(out_shape, in_shape, data):
    block = data.draw(st.lists(terms(out_shape, in_shape), min_size=1, max_size=3))
    joined = join(block, np.float32, align(block))
    np.testing.assert_array_equal(dense(joined), dense_sum(block, (*out_shape, *in_shape)))


@few
@given(SHAPES, SHAPES, st.data())
def test_densify(out_shape, in_shape, data):
    tangent = data.draw(tangents(out_shape, in_shape))
    axes = data.draw(st.lists(st.integers(0, len(out_shape) - 1), min_size=1, unique=True))
    result = densify(tangent, axes)
    shape = (*out_shape, *in_shape)
    np.testing.assert_array_equal(dense_sum(result.blocks[0], shape), dense_sum(tangent.blocks[0], shape))
    (term,) = result.blocks[0]
    assert all(term.out_axes[axis].is_plain for axis in axes)


@few
@given(SHAPES, SHAPES, st.data())
def test_settle(out_shape, in_shape, data):
    term = data.draw(terms(out_shape, in_shape))
    np.testing.assert_array_equal(dense(settle(term, np.float32)), dense(term))


def test_shifted_terms_keep_their_delta():
    label = Label(5)
    one = Term((), (plain(label),), (plain(label),))
    other = Label(4)
    two = Term((), (Affine(5, 0, ((other, 1),)),), (Affine(5, 0, ((other, 1),)),))
    found = align([one, two])
    assert found.axes[0].labels == found.axes[1].labels
    np.testing.assert_array_equal(dense(join([one, two], np.float32, found)), dense(one) + dense(two))


def test_equal_diagonals_merge():
    x = identity(0, np.float32, ((4,),))
    total = add_tangents([x.scaled(np.full(4, 2, np.float32)), x.scaled(np.full(4, 3, np.float32))])
    assert len(total.blocks[0]) == 1
    np.testing.assert_array_equal(dense(total.blocks[0][0]), 5 * np.eye(4))


def test_many_terms_are_joined():
    label = Label(3)
    block = [Term((), (Affine(60, 3 * i, ((label, 1),)),), (plain(label),)) for i in range(20)]
    total = add_tangents([tangent_of([term], (60,), (3,)) for term in block])
    assert len(total.blocks[0]) <= 13
    np.testing.assert_array_equal(dense_sum(total.blocks[0], (60, 3)), dense_sum(block, (60, 3)))
