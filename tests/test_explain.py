"""The report says what the engine did: each row is a record of it, and the costs add up to those of its program."""

import re

import jax
import jax.numpy as jnp
import pytest
from gallery import attention, heat_roll, mlp
from helpers import array, flops
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import symjac
from symjac._algebra.record import recording
from symjac._cost import cost
from symjac._engine.interpreter import registered

twice_p = Primitive("twice")
twice_p.def_impl(lambda x: 2 * x)
twice_p.def_abstract_eval(lambda x: x)
ad.deflinear2(twice_p, lambda cotangent, _: [twice_p.bind(cotangent)])
batching.defvectorized(twice_p)
mlir.register_lowering(twice_p, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))


def unknown(x):
    return jnp.sin(twice_p.bind(jnp.cos(x)))[::-1]


def loop(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(0.9 * c + jnp.roll(c, 1)), jnp.sum(c)), x, None, length=20)


def reaction(u):
    return heat_roll(u) - u**3


def self_attention(x):
    return attention((array(1, 4, 4), array(2, 4, 4), array(3, 4, 4)), x)


def looks_at_a_value(x):
    return jnp.sin(x) if x[0] > 0 else x


PROGRAMS = [
    pytest.param(mlp(5, 7, 4, 6), array(0, 5), id="mlp"),
    pytest.param(reaction, array(0, 9), id="stencil"),
    pytest.param(self_attention, array(0, 6, 4), id="attention"),
    pytest.param(loop, array(0, 5), id="scan"),
    pytest.param(unknown, array(0, 5), id="unknown_primitive", marks=pytest.mark.fallback),
]


def own_records(f, x, transform="jacfwd"):
    with recording() as records:
        closed = jax.make_jaxpr(getattr(symjac, transform)(f))(x)
    return sorted(records, key=lambda record: record.number), closed


@pytest.mark.parametrize(("f", "x"), PROGRAMS)
def test_each_row_is_a_record_of_the_engine(f, x):
    records, closed = own_records(f, x)
    report = symjac.explain(f, x, compiled=False)
    for row, record in zip(report.rows, records, strict=True):
        assert (row.primitive, row.fallback, row.notes, row.times) == (
            record.primitive,
            record.fallback,
            record.notes,
            record.times,
        )
        assert row.before == tuple(text for text in record.operands if text != "array")
        assert row.after == " ; ".join(text for text in record.results if text != "array")
    assert report.cost == cost(closed), "the rows do not add up to the program"


@pytest.mark.parametrize(("f", "x"), PROGRAMS)
def test_compiled_operations_are_those_that_xla_counts(f, x):
    report = symjac.explain(f, x)
    assert report.compiled_flops == pytest.approx(flops(symjac.jacfwd(f), x), rel=0.05)  # XLA folds constants
    assert report.jax_compiled_flops == pytest.approx(flops(jax.jacfwd(f), x), rel=0.05)


@pytest.mark.parametrize(("f", "x"), PROGRAMS)
def test_the_structure_is_that_of_linearize(f, x):
    structure = symjac.linearize(f, x)[1].structure
    kinds = [block.kind for row in structure.blocks for block in row]
    report = symjac.explain(f, x, compiled=False)
    assert len(report.structure.splitlines()) == len(kinds)
    assert all(kind in line for kind, line in zip(kinds, report.structure.splitlines(), strict=True))


def test_jax_pays_for_each_direction():
    report = symjac.explain(mlp(5, 7, 4, 6), array(0, 5), compiled=False)
    products = [row for row in report.rows if row.primitive == "dot_general"]
    assert [row.jax_cost.flops for row in products] == [
        5 * 2 * n_in * n_out for n_in, n_out in ((5, 7), (7, 4), (4, 6))
    ]
    assert report.basis == 5
    assert report.jax_cost.flops > report.cost.flops


def test_a_scan_is_counted_step_by_step():
    report = symjac.explain(loop, array(0, 5), compiled=False)
    outer, *inner = report.rows
    assert outer.primitive == "scan" and outer.depth == 0 and outer.jax_cost.flops == 0
    assert all(row.times == 20 and row.depth > 0 for row in inner)
    adds = [row for row in inner if row.primitive == "add"]
    assert adds and all(row.jax_cost.flops == 5 * 20 * 5 for row in adds)
    assert report.has_loops


@pytest.mark.fallback
def test_an_unknown_primitive_is_where_structure_is_lost():
    assert twice_p not in registered()
    report = symjac.explain(unknown, array(0, 5))
    (row,) = report.lost
    assert (row.primitive, row.before, row.after, row.lost) == ("twice", ("diagonal",), "dense", "no rule")
    assert row.place.startswith("test_explain.py:") and row.code == "return jnp.sin(twice_p.bind(jnp.cos(x)))[::-1]"
    assert "`twice` (test_explain.py:" in report.advice and "symjac.register" in report.advice
    assert not report.is_structured


def test_a_join_is_where_structure_is_lost():
    report = symjac.explain(lambda x: jnp.cumsum(x[::-1] ** 2), array(0, 8), compiled=False)
    (row,) = report.lost
    assert (row.primitive, row.lost) == ("cumsum", "along an axis")


def test_nothing_is_lost_and_nothing_is_computed():
    matrix = array(1, 4, 5)
    report = symjac.explain(lambda x: matrix @ x, array(0, 5))
    assert report.compiled_flops == 0
    assert report.advice == "Nothing is computed: the Jacobian exists already."
    assert report.structure == "dense 4 x 5"
    assert not report.lost and report.is_structured


def test_the_order_of_the_products_is_reported():
    wide, narrow, back = array(1, 3, 50), array(2, 40, 3), array(3, 50, 40)

    def hourglass(x):
        return back @ jnp.tanh(narrow @ jnp.tanh(wide @ x))

    report = symjac.explain(hourglass, array(0, 50), compiled=False)
    sizes = [[int(n) for n in re.findall(r"\d+", product)] for product in report.order]
    assert len(sizes) == 2
    assert all(3 in product for product in sizes), "the products go through the neck"


def test_the_cheaper_direction_is_reported():
    weights = array(1, 60, 60), array(2, 2, 60)

    def narrow(x):
        return weights[1] @ jnp.tanh(weights[0] @ jnp.tanh(x))

    report = symjac.explain(narrow, array(0, 60), transform="jacobian", compiled=False)
    assert report.direction == "reverse"
    assert report.basis == 2


def test_a_hessian_and_a_function_of_values():
    hessian = symjac.explain(lambda x: jnp.sum((x[1:] - x[:-1]) ** 4), array(0, 9), transform="hessian")
    assert hessian.structure == "tridiagonal 9 x 9"
    assert hessian.compiled_flops < hessian.jax_compiled_flops
    assert "The Hessian: tridiagonal 9 x 9" in str(hessian)
    by_value = symjac.explain(looks_at_a_value, jnp.ones(4))
    assert by_value.structure == "diagonal 4 x 4"
    assert by_value.compiled_flops is None


def test_several_arguments_and_outputs():
    def f(x, y):
        return {"sum": x["a"] + y, "product": x["a"] * y}

    report = symjac.explain(f, {"a": array(0, 3)}, array(1, 3), argnums=(0, 1), compiled=False)
    assert report.basis == 6
    assert all(" | " in row.after for row in report.rows)


def test_it_prints_as_a_table_and_as_html():
    report = symjac.explain(heat_roll, array(0, 9))
    lines = str(report).splitlines()
    assert lines[0] == "symjac.jacfwd of heat_roll, forward mode"
    assert repr(report) == str(report)
    assert sum("concatenate" in line for line in lines) == 2
    assert lines[-1] == report.advice
    page = report._repr_html_()
    assert page.count("<tr") == 1 + len(report.rows) + 3


def test_long_programs_are_shown_in_part():
    def long(x):
        for i in range(80):
            x = jnp.sin(x) + i
        return x

    report = symjac.explain(long, array(0, 3), compiled=False)
    assert len(report.rows) == 80
    lines = str(report).splitlines()
    assert len(lines) < 80
    assert sum(line == "..." for line in lines) >= 1


def test_errors_are_those_of_the_transform():
    with pytest.raises(TypeError, match="real-valued inputs"):
        symjac.explain(jnp.sin, jnp.arange(3))
    with pytest.raises(TypeError, match="callable"):
        symjac.explain(3, jnp.ones(3))
