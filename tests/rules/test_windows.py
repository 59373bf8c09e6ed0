"""Labels for the range that several windows reach."""

from __future__ import annotations

import jax.numpy as jnp
from helpers import array
from terms import dense

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, Label, plain
from symjac._algebra.tangent import Term
from symjac.rules.windows import narrow


def test_narrow_keeps_the_array_and_shrinks_the_labels():
    o, *places = labels = [Label(4), *(Label(3) for _ in range(4))]
    factors = tuple(Factor(array(i, 4, 3), (o, k)) for i, k in enumerate(places))
    term = Term(factors, (plain(o),), (Affine(20, -2, tuple((label, 1) for label in labels)),))
    thin = narrow(term, jnp.float32)
    assert thin.stored == 4 * 9
    assert jnp.allclose(dense(thin), dense(term), atol=1e-4)


def test_narrow_leaves_two_small_windows_alone():
    o, j, k = Label(4), Label(3), Label(3)
    term = Term((), (plain(o),), (Affine(10, 0, ((o, 1), (j, 1), (k, 1))),))
    assert narrow(term, jnp.float32) is term
