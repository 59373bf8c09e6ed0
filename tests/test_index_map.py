"""Index maps: arithmetic, composition and intersection, against brute force."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from terms import SIZES, index_maps

from symjac._algebra.index_map import Affine, Indexed, Label, compose, indexed, intersect, plain, spread, union

few = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
NUMBERS = st.integers(-4, 4)


def lines(size):
    strides = st.one_of(st.just(()), st.tuples(st.tuples(st.integers(1, 5).map(Label), NUMBERS.filter(bool))))
    return st.builds(Affine, st.just(size), st.integers(-3, 8), strides)


def table(index_map):
    """Label values and the position for each."""
    index = np.asarray(index_map.index())
    return {point: int(index[point]) for point in itertools.product(*map(range, index.shape))}


@few
@given(lines(6), lines(6))
def test_intersect_is_all_pairs_that_meet(outer, inner):
    expected = {(t, u) for t, a in table(outer).items() for u, b in table(inner).items() if a == b}
    expected = {((t or (0,))[0], (u or (0,))[0]) for t, u in expected}
    met = intersect(outer, inner)
    if met is None:
        assert not expected
        return
    t_map, u_map, count = met
    label = (t_map.labels or u_map.labels or (Label(1),))[0]
    values = [
        tuple(m.offset + sum(stride for _, stride in m.strides) * k for m in (t_map, u_map)) for k in range(label.size)
    ]
    assert len(values) == len(set(values)) == count
    assert set(values) == expected


@few
@given(st.data())
def test_bounds_and_stays_inside(data):
    labels = [Label(data.draw(SIZES)) for _ in range(2)]
    index_map = data.draw(index_maps(3, labels))
    positions = list(table(index_map).values())
    if isinstance(index_map, Affine):
        assert index_map.bounds() == (min(positions), max(positions))
        assert index_map.stays_inside == all(0 <= p < 3 for p in positions)


@few
@given(st.data(), st.sampled_from([1, 2, -1]), NUMBERS, st.integers(1, 6))
def test_shifted(data, scale, offset, size):
    index_map = data.draw(index_maps(3, [Label(data.draw(SIZES))]))
    moved = index_map.shifted(scale=scale, offset=offset, size=size)
    own, new = table(index_map), table(moved)
    for point, position in own.items():
        target = scale * position + offset
        kept = tuple(v for v, label in zip(point, index_map.labels, strict=True) if label in moved.labels)
        if 0 <= position < 3 and 0 <= target < size:
            assert new[kept] == target
        elif isinstance(index_map, Indexed):
            assert not 0 <= new[kept] < size


@few
@given(st.data())
def test_compose_is_reading_one_map_at_another(data):
    old = [Label(data.draw(SIZES)) for _ in range(2)]
    fresh = [Label(data.draw(SIZES)) for _ in range(2)]
    outer = data.draw(index_maps(4, old))
    inner = {label: data.draw(index_maps(label.size, fresh)) for label in old}
    composed = compose(outer, inner)
    for point in itertools.product(*(range(label.size) for label in fresh)):
        at = dict(zip(fresh, point, strict=True))
        values = {label: table(m)[tuple(at[each] for each in m.labels)] for label, m in inner.items()}
        got = table(composed)[tuple(at[label] for label in composed.labels)]
        if all(0 <= values[label] < label.size for label in outer.labels):
            position = table(outer)[tuple(values[label] for label in outer.labels)]
            assert got == position or not (0 <= position < 4 or 0 <= got < 4)
        elif not outer.is_plain:
            assert not 0 <= got < 4


@few
@given(st.data())
def test_affine_arrays_are_found(data):
    labels = tuple(Label(data.draw(SIZES)) for _ in range(2))
    strides = tuple((label, data.draw(st.integers(0, 2))) for label in labels)
    affine = Affine(9, data.draw(st.integers(0, 1)), strides)
    found = indexed(9, affine.index(), labels)
    assert isinstance(found, Affine) == affine.stays_inside
    if isinstance(found, Affine):
        assert all(stride and label.size > 1 for label, stride in found.strides)
        np.testing.assert_array_equal(
            np.broadcast_to(spread(found.index(), found.labels, labels), affine.index().shape), affine.index()
        )


def test_an_array_that_is_not_affine_stays_an_array():
    label = Label(4)
    found = indexed(5, np.array([0, 1, 3, 4]), (label,))
    assert isinstance(found, Indexed) and found.stays_inside
    assert not indexed(4, np.array([0, 1, 3, 4]), (label,)).stays_inside
    assert isinstance(indexed(5, jnp.array([0, 1, 2, 3]), (label,)), Indexed)


def test_a_traced_array_under_new_labels_is_the_same_array():
    old, new = Label(3), Label(3)
    outer = Indexed(5, jnp.array([0, 4, 2]), (old,))
    assert compose(outer, {old: plain(new)}).array is outer.array


def test_union_and_spread():
    a, b, c = Label(2), Label(3), Label(4)
    assert union([(a, b), (b, c), (a,)]) == (a, b, c)
    assert spread(np.zeros((3, 2)), (b, a), (a, c, b)).shape == (2, 1, 3)
