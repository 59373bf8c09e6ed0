"""Terms become the arrays that they stand for."""

from __future__ import annotations

from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import SIZES, dense_sum, tangent_of, tangents

from symjac._algebra import materialise as materialise_module
from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, Indexed, Label, plain
from symjac._algebra.tangent import Term, identity
from symjac._engine.interpreter import materialise

few = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SHAPES = st.lists(SIZES, min_size=1, max_size=2).map(tuple)


@pytest.mark.parametrize("by_selects", [True, False])
@few
@given(SHAPES, SHAPES, st.data())
def test_materialise_is_the_definition(by_selects, out_shape, in_shape, data):
    with mock.patch.object(materialise_module, "_prefers_selects", lambda pieces: by_selects):
        check_definition(out_shape, in_shape, data)


def check_definition(out_shape, in_shape, data):
    tangent = data.draw(tangents(out_shape, in_shape))
    expected = dense_sum(tangent.blocks[0], (*out_shape, *in_shape))
    np.testing.assert_array_equal(materialise(tangent, 0), expected)
    turned = np.transpose(expected, (*range(len(out_shape), expected.ndim), *range(len(out_shape))))
    np.testing.assert_array_equal(materialise(tangent, 0, transposed=True), turned)


def test_a_factor_over_all_axes_is_returned_itself():
    array = jnp.arange(6.0).reshape(2, 3)
    rows, columns = Label(2), Label(3)
    tangent = tangent_of([Term((Factor(array, (rows, columns)),), (plain(rows),), (plain(columns),))], (2,), (3,))
    assert materialise(tangent, 0) is array


def test_identity():
    np.testing.assert_array_equal(materialise(identity(0, np.float32, ((4,),)), 0), np.eye(4))


@pytest.mark.parametrize("place", [np.array(0, np.int32), jnp.array(0)])
def test_positions_without_labels(place):
    block = [Term((), (Affine(3, i, ()),), (Indexed(2, place, (), True), Affine(3, 2 - i, ()))) for i in range(2)]
    expected = dense_sum(block, (3, 2, 3))
    np.testing.assert_array_equal(materialise(tangent_of(block, (3,), (2, 3)), 0), expected)
