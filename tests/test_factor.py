"""Products of factors come in an order that compilers have fast code for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array

from symjac._algebra.factor import Factor, contract
from symjac._algebra.index_map import Label

H, J, K, N = Label(4), Label(5), Label(6), Label(7)


def products(labels, keep):
    """The products of a contraction as (labels of the operands, number of batch labels), checked for their values."""
    arrays = [array(i, *(label.size for label in own)) for i, own in enumerate(labels)]

    def run(*arrays):
        factors = [Factor(a, own) for a, own in zip(arrays, labels, strict=True)]
        result = contract(factors, keep, np.float32)
        return jnp.transpose(result.array, [result.labels.index(label) for label in keep])

    letters = {label: letter for label, letter in zip((H, J, K, N), "hjkn", strict=True)}
    words = ["".join(letters[label] for label in own) for own in (*labels, keep)]
    expected = np.einsum(f"{','.join(words[:-1])}->{words[-1]}", *map(np.asarray, arrays))
    np.testing.assert_allclose(run(*arrays), expected, rtol=1e-4, atol=1e-4)
    equations = jax.make_jaxpr(run)(*arrays).eqns
    dots = [e for e in equations if e.primitive.name == "dot_general"]
    return [([v.aval.shape for v in e.invars], len(e.params["dimension_numbers"][1][0])) for e in dots]


@pytest.mark.parametrize("keep", [(J, N), (N, J)])
def test_a_vector_stands_before_the_array_that_it_is_summed_with(keep):
    for labels in ([(K, J, N), (K,)], [(K,), (K, J, N)]):
        ((shapes, n_batch),) = products(labels, keep)
        assert shapes == [(6,), (6, 5, 7)] and not n_batch


def test_a_vector_stands_behind_an_array_of_rows():
    ((shapes, _),) = products([(J, N, K), (K,)], (J, N))
    assert shapes == [(5, 7, 6), (6,)]


def test_a_diagonal_goes_into_the_one_array_that_has_its_labels():
    """The other order takes as many operations, and one small product for each entry of the diagonal."""
    ((_, n_batch),) = products([(H, J), (N, J), (N, J, K)], (N, H, K))
    assert not n_batch


def test_a_diagonal_between_two_matrices_goes_into_the_smaller_one():
    ((shapes, _),) = products([(H, J), (J,), (J, N)], (H, N))
    assert sorted(shapes) == [(4, 5), (5, 7)]
