"""Random terms, and what they mean: a sum over all values of all labels."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, Indexed, Label, plain
from symjac._algebra.tangent import StructuredTangent, Term

SIZES = st.integers(1, 3)


@st.composite
def index_maps(draw, size, labels):
    """A map into an axis from some of the labels: plain, affine (in and out of range), constant, static or traced."""
    fitting = [label for label in labels if label.size == size]
    kind = draw(st.sampled_from(["plain"] * 3 + ["affine"] * 3 + ["static", "traced"]))
    if kind == "plain" and fitting:
        return plain(draw(st.sampled_from(fitting)))
    own = draw(st.lists(st.sampled_from(labels), max_size=2, unique=True)) if labels else []
    if kind in ("static", "traced"):
        shape = tuple(label.size for label in own)
        values = draw(st.lists(st.integers(-1, size), min_size=math.prod(shape), max_size=math.prod(shape)))
        array = np.array(values, np.int32).reshape(shape)
        inside = bool(((array >= 0) & (array < size)).all())
        return Indexed(size, array if kind == "static" else jnp.asarray(array), tuple(own), inside)
    strides = tuple((label, draw(st.sampled_from([1, 1, 2, -1, 3]))) for label in own)
    return Affine(size, draw(st.integers(-2, 2)) if own else draw(st.integers(0, size - 1)), strides)


@st.composite
def terms(draw, out_shape, in_shape, labels=None, dtype=np.float32):
    """A term between axes of given sizes."""
    if labels is None:
        labels = [Label(n) for n in draw(st.lists(SIZES, min_size=1, max_size=3))]
    axes = [draw(index_maps(n, labels)) for n in (*out_shape, *in_shape)]
    factors = []
    for _ in range(draw(st.integers(0, 2))):
        own = draw(st.lists(st.sampled_from(labels), max_size=2, unique=True))
        factors.append(Factor(values(draw, [label.size for label in own], dtype), tuple(own)))
    return Term(tuple(factors), tuple(axes[: len(out_shape)]), tuple(axes[len(out_shape) :]))


def values(draw, shape, dtype=np.float32):
    """Small whole numbers, so that sums are exact."""
    seed = draw(st.integers(0, 99))
    return jnp.asarray(np.random.default_rng(seed).integers(-3, 4, tuple(shape)), dtype)


@st.composite
def tangents(draw, out_shape, in_shape, most=3):
    """A tangent with several terms."""
    block = draw(st.lists(terms(out_shape, in_shape), min_size=1, max_size=most))
    return tangent_of(block, out_shape, in_shape)


def tangent_of(block, out_shape, in_shape):
    block = tuple(term for term in block if term is not None)
    return StructuredTangent(tuple(out_shape), np.dtype(np.float32), (tuple(in_shape),), (block,))


def dense(term):
    """The array that a term stands for, by its definition."""
    shape = [axis.size for axis in term.axes]
    total = np.zeros(shape, np.float64)
    labels = term.labels
    maps = [(axis, np.asarray(axis.index())) for axis in term.axes]
    factors = [(factor, np.asarray(factor.array)) for factor in term.factors]
    for point in itertools.product(*(range(label.size) for label in labels)):
        at = dict(zip(labels, point, strict=True))
        position = [int(index[tuple(at[label] for label in axis.labels)]) for axis, index in maps]
        if all(0 <= i < n for i, n in zip(position, shape, strict=True)):
            product = 1.0
            for factor, array in factors:
                product = product * array[tuple(at[label] for label in factor.labels)]
            total[tuple(position)] += product
    return total


def dense_sum(block, shape):
    return sum((dense(term) for term in block if term is not None), np.zeros(shape))
