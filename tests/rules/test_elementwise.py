"""Elementwise rules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, positive
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from rule_cases import backwards, case, check, each

import symjac
from symjac import _compat

X, M, P = array(0, 5), array(1, 3, 2), positive(2, 3, 2)
Z = lax.complex(array(3, 3), array(4, 3))
ONE, NONE = array(5, 1), array(6, 0)
HALF = X.astype(jnp.bfloat16)


def turned(x):
    return lax.complex(jnp.zeros_like(x), x)


CASES = [
    *(case(f.__name__, f, X) for f in (jnp.sin, jnp.exp, jnp.tanh, jnp.abs, jnp.square, lax.neg, jax.nn.gelu)),
    *(case(f"{f.__name__} of none", f, NONE) for f in (jnp.sin, jax.nn.relu)),
    case("polyval", jnp.polyval, array(20, 4), X),
    case("polyval of rows", lambda c: jnp.polyval(c, array(24, 2, 3)), array(23, 2, 1, 3)),
    case("of one", lambda x: jnp.sin(x) * x, ONE),
    case("scalar", lambda x: jnp.sin(x) * x, X[0]),
    case("add", lambda x, y: jnp.sin(x) + y, M, P),
    case("add to itself", lambda x: jnp.sin(x) + jnp.cos(x) + x, M),
    case("sub", lambda x, y: x - y * x, M, P),
    case("mul", lambda x, y: x * y, M, P),
    case("mul by size one", lambda x, y: x * y, M, array(7, 1, 2)),
    case("add size one", lambda x, y: x + y, M, array(7, 3, 1)),
    case("div", lambda x, y: x / y, M, P),
    case("div of broadcast", lambda x, y: x / y, array(7, 1, 2), P),
    case("div by a number", lambda x: (2 - x) / 3, M),
    case("power", lambda x, y: x**y, P, array(8, 3, 2)),
    case("to bfloat16", lambda x: jnp.sin(x).astype(jnp.bfloat16), X),
    case("from bfloat16", lambda x: jnp.sin(x.astype(jnp.float32)), HALF),
    case("bfloat16", lambda x: x * x, HALF),
    case("float16", lambda x: jnp.sin(x) * 2, X.astype(jnp.float16)),
    case("polynomial", lambda x, c: jnp.polyval(c, x), P, array(9, 3)),
    case("reduce precision", lambda x: lax.reduce_precision(x, 8, 7), X),
    case("copy", lambda x: jnp.copy(x) * 2, X),
    case("checkpoint name", lambda x: checkpoint_name(jnp.sin(x), "sine"), X),
    case("optimization barrier", lambda x: jnp.multiply(*lax.optimization_barrier((x, jnp.sin(x)))), X),
    case("device put", lambda x: jax.device_put(jnp.sin(x)), X),
    case("relu", jax.nn.relu, X),
    case("clip", lambda x: jnp.clip(x, -0.5, 0.5), X),
    case("where", lambda x, y: jnp.where(x > 0, x * y, jnp.sin(y)), M, P),
    case("where row", lambda x: jnp.where(jnp.arange(2) > 0, x, x**2), M),
    case("select of three", lambda x: lax.select_n(jnp.array([0, 2, 1, 1, 0]), x, x**2, jnp.sin(x)), X),
    case("select by a scalar", lambda x: lax.select_n(x[0] > 0, x, x**2), X),
    case("triangle", lambda x: jnp.triu(x[:, None] * x[None]), X),
    case("complex holomorphic", lambda z: jnp.sin(z) * z, Z, reverse=False, holomorphic=True),
    case("through complex", lambda x, y: jnp.abs(jnp.exp(lax.complex(x, y))), X, X[::-1]),
    case("real and imag", lambda x: jnp.real(jnp.exp(turned(x))) * jnp.imag(turned(x) * turned(x + 1) * turned(x)), X),
    case("conj", lambda x: jnp.real(jnp.conj(jnp.exp(turned(x))) * turned(x + 1)), X),
    case("conj of real parts", lambda x, y: jnp.imag(jnp.conj(lax.complex(x, y)) ** 2), X, X * 2),
]


@each(CASES)
def test_elementwise(case):
    check(case)


def test_float64():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        x = jnp.asarray(np.linspace(-1, 1, 4))
        check(case("float64", lambda x: jnp.sin(x) * x.astype(jnp.float32).astype(jnp.float64), x))
        z = lax.complex(jnp.asarray(np.linspace(-1, 1, 4)), jnp.ones(4))
        check(case("complex128", lambda z: jnp.exp(z) / z, z, reverse=False, holomorphic=True))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("guard", ["select", "inner", "sum"])
def test_what_a_select_masks_does_not_come_back(bad, guard):
    x = jnp.array([1.0, 0.0, 4.0])
    functions = {
        "select": lambda x: jnp.where(x > 0, jnp.sqrt(x), bad),
        "inner": lambda x: jnp.where(x > 0, 1 / x, 0.0) * jnp.array([1.0, 2.0, 3.0]),
        "sum": lambda x: jnp.sum(jnp.where(x > 0, jnp.log(x) * jnp.where(x > 0, x, 0.0), 0.0)),
    }
    got, want = symjac.jacfwd(functions[guard])(x), jax.jit(jax.jacfwd(functions[guard]))(x)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_sharding_constraint_passes():
    mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    one = case("constraint", lambda x: lax.with_sharding_constraint(jnp.sin(x), sharding), array(0, 4))
    check(one)
    assert backwards(one, *one.args)


def test_identities_pass_the_tangent_itself():
    from symjac._algebra.tangent import identity
    from symjac._engine.interpreter import registered

    tangent = identity(0, np.float32, ((3,),))
    for primitive in (lax.copy_p, _compat.name_p, _compat.pvary_p, _compat.reshard_p):
        if primitive is not None:
            assert registered()[primitive](tangent) is tangent
