"""The layout of operands and parameters that the rules rely on, pinned for each primitive."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import array
from jax import lax
from jax.extend.core import Literal

X, M = array(0, 5), array(1, 3, 4)
I = jnp.array([2, 0])  # noqa: E741


def equations(jaxpr, name):
    """All equations of a primitive in a jaxpr and in those inside of it."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == name:
            yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner, name)


def tangent_equation(name, f, *args, argnums=0):
    """The last equation of a primitive in the program of jvp, which is the one on the tangent."""

    def jvp(x, t):
        filled = list(args)

        def of_one(x):
            filled[argnums] = x
            return f(*filled)

        return jax.jvp(of_one, (x,), (t,))

    jaxpr = jax.make_jaxpr(jvp)(args[argnums], args[argnums]).jaxpr
    return list(equations(jaxpr, name))[-1]


GATHER_NUMBERS = (
    "offset_dims",
    "collapsed_slice_dims",
    "start_index_map",
    "operand_batching_dims",
    "start_indices_batching_dims",
)
SCATTER_NUMBERS = (
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    "operand_batching_dims",
    "scatter_indices_batching_dims",
)
POOL = {"window_dimensions", "window_strides", "padding"}


def pool(x, start, op):
    return lax.reduce_window(x, start, op, (2, 2), (1, 2), "VALID")


CONTRACTS = {
    # name: a function, its arguments, the number of operands, parameters that the rule takes
    "neg": (lambda x: -x, (X,), 1, set()),
    "mul": (lambda x: 2 * x, (X,), 2, set()),
    "div": (lambda x: x / 3, (X,), 2, set()),
    "select_n": (lambda x: lax.select(x > 0, x, -x), (X,), 3, set()),
    "convert_element_type": (lambda x: x.astype(jnp.float16), (X,), 1, {"new_dtype"}),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (2, 5), (1,)), (X,), 1, {"shape", "broadcast_dimensions"}),
    "reshape": (lambda x: x.reshape(4, 3), (M,), 1, {"new_sizes", "dimensions"}),
    "squeeze": (lambda x: lax.squeeze(x, (0,)), (M[:1],), 1, {"dimensions"}),
    "transpose": (lambda x: x.T, (M,), 1, {"permutation"}),
    "rev": (lambda x: lax.rev(x, (0,)), (X,), 1, {"dimensions"}),
    "slice": (lambda x: lax.slice(x, (1,), (4,), (2,)), (X,), 1, {"start_indices", "limit_indices", "strides"}),
    "pad": (lambda x: jnp.pad(x, 1), (X,), 2, {"padding_config"}),
    "concatenate": (lambda x: jnp.concatenate([x, x, x]), (X,), 3, {"dimension"}),
    "split": (lambda x: lax.split(x, (2, 3)), (X,), 1, {"sizes", "axis"}),
    "reduce_sum": (lambda x: jnp.sum(x, 0), (M,), 1, {"axes"}),
    "cumsum": (lambda x: lax.cumsum(x, 0), (X,), 1, {"axis", "reverse"}),
    "dot_general": (lambda x: M @ x, (M[0],), 2, {"dimension_numbers", "precision", "preferred_element_type"}),
    "gather": (lambda x: x[I], (M,), 2, {"dimension_numbers", "slice_sizes", "mode", "fill_value"}),
    "scatter-add": (lambda x: x.at[I].add(x[:2]), (M,), 3, {"dimension_numbers", "mode"}),
    "scatter": (lambda x: x.at[I].set(x[:2], unique_indices=True), (M,), 3, {"dimension_numbers", "mode"}),
    "scatter-mul": (lambda x: x.at[I].mul(2.0), (M,), 3, {"dimension_numbers", "mode"}),
    "dynamic_slice": (lambda x: lax.dynamic_slice(x, (I[0], I[1]), (2, 2)), (M,), 3, {"slice_sizes"}),
    "dynamic_update_slice": (lambda x: lax.dynamic_update_slice(x, x[:2], (I[0], I[1])), (M,), 4, set()),
    "conv_general_dilated": (
        lambda x: lax.conv_general_dilated(x, array(2, 4, 2, 3), (1,), "SAME"),
        (array(3, 1, 2, 6),),
        2,
        {
            "window_strides",
            "padding",
            "lhs_dilation",
            "rhs_dilation",
            "dimension_numbers",
            "feature_group_count",
            "batch_group_count",
            "precision",
            "preferred_element_type",
        },
    ),
    "reduce_window_sum": (lambda x: pool(x, 0.0, lax.add), (M,), 1, POOL | {"base_dilation", "window_dilation"}),
    "select_and_gather_add": (
        lambda x: pool(x, -jnp.inf, lax.max),
        (M,),
        2,
        POOL | {"select_prim", "base_dilation", "window_dilation"},
    ),
    "select_and_scatter_add": (
        jax.grad(lambda x: jnp.sum(pool(x, -jnp.inf, lax.max) ** 2)),
        (M,),
        2,
        POOL | {"select_prim"},
    ),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_operands_and_parameters(name):
    f, args, count, params = CONTRACTS[name]
    eqn = tangent_equation(name, f, *args)
    assert len(eqn.invars) == count
    assert params <= set(eqn.params)
    if name != "split":
        assert not eqn.primitive.multiple_results


def test_index_operands_come_after_what_they_index():
    for name, place in (("gather", 1), ("scatter-add", 1), ("dynamic_slice", 1), ("dynamic_update_slice", 2)):
        f, args, *_ = CONTRACTS[name]
        kinds = [jnp.issubdtype(v.aval.dtype, jnp.integer) for v in tangent_equation(name, f, *args).invars]
        assert not any(kinds[:place]) and kinds[place]


def test_the_tangent_of_a_gather_is_filled_with_zeros():
    eqn = tangent_equation("gather", lambda x: jnp.take(x, I, axis=0), M)
    assert eqn.params["fill_value"] == 0
    assert tuple(type(eqn.params["dimension_numbers"])._fields) == GATHER_NUMBERS


def test_scatter_numbers():
    eqn = tangent_equation("scatter-add", *CONTRACTS["scatter-add"][:1], M)
    assert tuple(type(eqn.params["dimension_numbers"])._fields) == SCATTER_NUMBERS
    assert lax.GatherScatterMode.from_any(eqn.params["mode"]) == lax.GatherScatterMode.FILL_OR_DROP


def test_convolution_numbers_list_batch_feature_and_space():
    numbers = tangent_equation("conv_general_dilated", *CONTRACTS["conv_general_dilated"][:1], array(3, 1, 2, 6))
    numbers = numbers.params["dimension_numbers"]
    assert (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec) == ((0, 1, 2),) * 3


def test_select_and_gather_add_takes_the_tangent_first():
    f, args, *_ = CONTRACTS["select_and_gather_add"]
    eqn = tangent_equation("select_and_gather_add", f, *args)
    assert eqn.params["select_prim"] is lax.ge_p
    eqn = tangent_equation("select_and_gather_add", lambda x: pool(x, jnp.inf, lax.min), *args)
    assert eqn.params["select_prim"] is lax.le_p


def test_select_n_takes_the_predicate_first():
    eqn = tangent_equation("select_n", *CONTRACTS["select_n"][:1], X)
    assert eqn.invars[0].aval.dtype == bool


def test_the_tangent_of_a_division_is_divided_by_an_array():
    eqn = tangent_equation("div", lambda x, y: x / y, X, X + 3)
    assert len(eqn.invars) == 2 and not isinstance(eqn.invars[0], Literal)


def test_a_numpy_index_out_of_range_is_dropped_by_scatter_and_clamped_by_gather():
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    got = lax.gather(X, jnp.array([[9], [-2]]), numbers, (1,), mode="promise_in_bounds")
    assert (got == X[jnp.array([4, 0])]).all()
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    got = lax.scatter_add(X, jnp.array([[9], [-2]]), jnp.ones(2), numbers, mode="promise_in_bounds")
    assert (got == X).all()
