"""Every registered primitive has a case in which it really meets a tangent."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array
from jax import lax
from rule_cases import backwards, case

import symjac
from symjac._algebra.record import recording
from symjac._engine.interpreter import registered

FILES = ("elementwise", "layout", "contraction", "indexing", "convolution", "pooling", "control_flow")

X, MATRIX = array(0, 3), array(1, 3, 3) + 4 * np.eye(3, dtype=np.float32)
OTHERS = [
    case("triangular solve", lambda x: lax.linalg.triangular_solve(MATRIX, x[:, None], left_side=True), X),
    case("tridiagonal solve", lambda x: lax.linalg.tridiagonal_solve(X, X + 5, X, x[:, None]), X),
    case("linear solve", lambda x: jnp.linalg.solve(MATRIX, x), X),
    case("fft", lambda x: jnp.real(jnp.fft.fft(x)), X),
]

# Primitives that need more than a case of one line, or that only programs not made by JAX's jvp can hold.
ELSEWHERE = {
    "custom_jvp_call": "jvp replaces it by the rule that it names",
    "name": "jvp leaves it on the primal alone",
    "nondifferentiable_backward": "tested in test_equinox.py",
    "reshard": "an identity, tested in rules/test_elementwise.py; it needs a mesh of explicit axes",
    "pvary": "the same; it needs shard_map",
    "call": "no public function of JAX makes one under jvp; the rule is that of jit",
    "closed_call": "the same",
    "eval_jaxpr": "the same",
    "composite": "JAX does not differentiate it, so that only one without a tangent is met",
    "sharding_constraint": "tested in rules/test_elementwise.py, with devices",
}


def cases():
    found = [each for name in FILES for each in importlib.import_module(f"rules.test_{name}").CASES]
    return [*found, *OTHERS]


def met():
    """The names of all primitives that met a tangent in some case, by tangents or by cotangents."""
    names = set()
    for one in cases():
        options = {"argnums": one.argnums, "holomorphic": one.holomorphic}
        with recording() as records, symjac.strict(False):
            jax.make_jaxpr(symjac.jacfwd(lambda *a, f=one.function: jax.tree.leaves(f(*a)), **options))(*one.args)
            if one.reverse:
                jax.make_jaxpr(lambda *a, one=one: backwards(one, *a))(*one.args)
        names |= {record.primitive for record in records}
    return names


@pytest.mark.fallback
def test_every_primitive_with_a_rule_meets_a_tangent_in_some_case():
    modules = {p.name: rule.__module__ for p, rule in registered().items()}
    ours = {p for p, name in modules.items() if name.startswith("symjac.rules.") and not name.endswith(".equinox")}
    assert ours - set(ELSEWHERE) <= met()


def test_names_of_cases_are_unique():
    for name in FILES:
        names = [each.name for each in importlib.import_module(f"rules.test_{name}").CASES]
        assert len(names) == len(set(names)) or name == "indexing"


def test_rules_are_named_functions_with_a_docstring():
    for primitive, rule in registered().items():
        assert rule.__name__ not in ("<lambda>", "_"), primitive
        assert rule.__doc__, primitive
        assert len(rule.__doc__.splitlines()) <= 10, primitive


def test_a_second_registration_raises():
    with pytest.raises(ValueError, match="already has a rule"):
        symjac.register(lax.neg_p)(lambda x: x)
