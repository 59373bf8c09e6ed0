"""Strict mode holds, and the values are JAX's, for every program of the gallery and for `vmap` of it."""

import gallery
import jax
import pytest
from helpers import check_against_jax, stacked

CASES = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in gallery.CASES])


@CASES
def test_jacfwd_equals_jax_without_a_fallback(case):
    check_against_jax(case.function, *case.args, argnums=case.argnums, **case.options)


@CASES
def test_jacfwd_of_vmap_equals_jax_without_a_fallback(case):
    batched, axes = stacked(case.args)
    check_against_jax(jax.vmap(case.function, axes), *batched, argnums=case.argnums, modes=("eager",), **case.options)


def test_names_are_unique():
    names = [case.name for case in gallery.CASES]
    assert len(set(names)) == len(names)
