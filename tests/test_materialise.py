"""Terms become the arrays that they stand for."""

from __future__ import annotations

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, assert_close, flops
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import SIZES, dense_sum, tangent_of, tangents

import symjac
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
    with mock.patch.object(materialise_module, "_prefers_selects", lambda *_, **__: by_selects):
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


def robertson(y):
    first, second, third = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return jnp.stack([-first + second, first - second - third, third])


def test_a_small_result_is_written_by_one_loop_without_scratch():
    y = jnp.array([0.9, 0.1, 0.2])
    program = jax.jit(symjac.jacobian(robertson)).lower(y).compile()
    memory = program.memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes == 9 * 4
    assert "scatter" not in program.as_text() and "gather" not in program.as_text()
    assert_close(program(y), jax.jacfwd(robertson)(y), "robertson")


def test_pieces_behind_one_mask_are_added_before_they_are_stretched():
    def layer_norm(x):
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred**2, axis=1, keepdims=True) + 1e-5)

    x = array(40, 12, 20)
    assert flops(symjac.jacfwd(layer_norm), x) < 1.5 * x.size**2  # One select, and what is smaller by 12.
    assert_close(symjac.jacfwd(layer_norm)(x), jax.jacfwd(layer_norm)(x), "layer_norm", rtol=1e-4)


def test_blocks_side_by_side_are_joined():
    def parts(x):
        return jnp.concatenate([jnp.sin(x[:2]) @ FIRST, x[5:] @ SECOND])

    x = array(43, 9)
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(symjac.jacobian(lambda x: jnp.sum(parts(x))))(x).eqns]
    assert not {"scatter", "scatter-add", "dynamic_update_slice"} & set(names)
    assert_close(symjac.jacobian(lambda x: jnp.sum(parts(x)))(x), jax.grad(lambda x: jnp.sum(parts(x)))(x), "joined")


FIRST, SECOND = array(41, 2, 3), array(42, 4, 3)
