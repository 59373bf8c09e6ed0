"""Convolutions and pooling."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import array, check_against_jax, flops
from jax import lax
from rule_cases import case, check, each
from terms import dense

import symjac
from symjac._algebra.factor import Factor
from symjac._algebra.index_map import Affine, Label, plain
from symjac._algebra.tangent import Term
from symjac.rules.windows import narrow


def convolution(name, x, w, *args, **options):
    """A case for both arguments, the left one after a sine."""
    return case(f"conv {name}", lambda x, w: lax.conv_general_dilated(jnp.sin(x), w, *args, **options), x, w)


def deep(x, *weights, stride=1):
    for w in weights:
        x = jnp.tanh(lax.conv_general_dilated(x, w, (stride,), "SAME"))
    return x


def groups(x, w):
    return lax.conv_general_dilated((x @ w)[None], array(14, 4, 1, 3), (2,), "SAME", feature_group_count=2)


def pool(x, window, strides, padding, op=lax.max, **options):
    start = {lax.max: -jnp.inf, lax.min: jnp.inf, lax.add: 0.0}[op]
    return lax.reduce_window(x, start, op, window, strides, padding, **options)


IMAGE, LINE = array(0, 4, 5), array(1, 1, 2, 7)
WEIGHTS = [array(i, 2, 2, 3) for i in range(4)]

CASES = [
    convolution("of lines", array(2, 2, 3, 6), array(3, 4, 3, 3), (1,), "VALID"),
    convolution("padded and strided", LINE, array(3, 3, 2, 3), (2,), [(2, 1)]),
    convolution("padded by less than nothing", LINE, array(3, 3, 2, 2), (2,), [(-1, -2)]),
    convolution("of a dilated line", array(4, 1, 2, 4), array(3, 3, 2, 3), (2,), [(1, 2)], lhs_dilation=(3,)),
    convolution("dilated in both", LINE, array(3, 3, 2, 3), (1,), [(1, 1)], lhs_dilation=(2,), rhs_dilation=(2,)),
    convolution("in groups", array(5, 2, 6, 4), array(6, 4, 3, 2), (1,), "SAME", feature_group_count=2),
    convolution("depthwise", array(5, 2, 3, 4), array(6, 6, 1, 2), (1,), "VALID", feature_group_count=3),
    convolution("in groups of the batch", array(5, 4, 3, 4), array(6, 6, 3, 2), (1,), "VALID", batch_group_count=2),
    convolution(
        "of images",
        array(7, 2, 4, 5, 3),
        array(8, 2, 3, 3, 2),
        (1, 2),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    convolution("of volumes", array(7, 1, 2, 3, 3, 2), array(8, 2, 2, 2, 2, 1), (1, 2, 1), "VALID"),
    convolution("without space", array(7, 2, 3), array(8, 4, 3), (), ()),
    convolution("with size one", array(7, 1, 1, 1), array(8, 1, 1, 1), (1,), "VALID"),
    convolution("with no positions", array(7, 1, 2, 2), array(8, 3, 2, 3), (1,), "VALID"),
    case(
        "transposed",
        lambda x: lax.conv_transpose(x, WEIGHTS[0], (2,), "SAME", dimension_numbers=("NCH", "OIH", "NCH")),
        LINE,
    ),
    case("deep", deep, LINE, *WEIGHTS[:2]),
    case("deep and strided", lambda x: deep(x, *WEIGHTS[:3], stride=2), array(9, 1, 2, 12)),
    case("deeper", lambda x: deep(x, *WEIGHTS), LINE),
    case("of a slice", lambda x: deep(x[:, :, 1:-1], WEIGHTS[0]), LINE),
    case("of a broadcast", lambda x: deep(jnp.broadcast_to(x[:, :, :1], x.shape), WEIGHTS[0]), LINE),
    case("of a scatter", lambda x, i: deep(x.at[:, :, i].add(x[:, :, :2]), WEIGHTS[0]), LINE, jnp.array([3, 1])),
    case("of a product", lambda x, w: deep((x @ w)[None], *WEIGHTS[:2]), array(15, 2, 3), array(16, 3, 5)),
    case("of a product, in groups", groups, array(15, 2, 3), array(16, 3, 6)),
    case("of a repeated product", lambda x, w: deep(jnp.repeat(x @ w, 2, 1)[None], WEIGHTS[0]), IMAGE[:2], IMAGE.T),
    case("of a batch of products", lambda x, w: deep(x @ w, *WEIGHTS[:2]), array(17, 3, 2, 2), array(18, 2, 4)),
    case(
        "of a padded product", lambda x, w: deep(jnp.pad(x @ w, ((0, 0), (2, 1)))[None], WEIGHTS[0]), IMAGE[:2], IMAGE.T
    ),
    case("relu, to one number a channel", lambda x: jax.nn.relu(deep(x, *WEIGHTS[:2])).mean((0, 2)), LINE),
    case("vmap", lambda x, w: jax.vmap(deep)(x[:, None], w), array(10, 3, 2, 5), array(11, 3, 2, 2, 3)),
    case("convolve", jnp.convolve, array(12, 6), array(13, 3)),
    case("correlate with itself", lambda x: jnp.correlate(x, x[:3]), array(12, 6)),
    case("gradient", jax.grad(lambda x, w: jnp.sum(deep(x, w) ** 2), (0, 1)), LINE, WEIGHTS[0]),
    case("sum", lambda x: pool(x, (2, 2), (2, 2), "VALID", lax.add), IMAGE),
    case("sum of sines", lambda x: pool(jnp.sin(x), (2, 3), (1, 2), "SAME", lax.add), IMAGE),
    case("sum padded", lambda x: pool(x, (2, 3), (1, 2), ((1, 2), (0, 1)), lax.add), IMAGE),
    case("sum dilated", lambda x: pool(x, (2, 2), (1, 1), "VALID", lax.add, window_dilation=(1, 2)), IMAGE),
    case("sum of a dilated image", lambda x: pool(x, (2, 2), (1, 1), "VALID", lax.add, base_dilation=(2, 1)), IMAGE),
    case(
        "sum of a broadcast",
        lambda x: pool(jnp.broadcast_to(x[:, :1], x.shape), (2, 3), (1, 1), "SAME", lax.add),
        IMAGE,
    ),
    case(
        "sum of sums",
        lambda x: pool(pool(x, (1, 3), (1, 1), "SAME", lax.add) ** 2, (1, 3), (1, 1), "SAME", lax.add),
        IMAGE,
    ),
    case("max", lambda x: pool(x, (2, 2), (2, 2), "VALID"), IMAGE),
    case("max of sines", lambda x: pool(jnp.sin(x), (2, 3), (1, 2), "SAME"), IMAGE),
    case("max with ties", lambda x: pool(jnp.round(x) + 0 * x, (2, 2), (1, 1), "VALID"), IMAGE),
    case(
        "min dilated", lambda x: pool(x, (1, 2), (1, 1), "VALID", lax.min, window_dilation=(1, 2)), IMAGE, reverse=False
    ),
    case("min", lambda x: pool(x, (2, 2), (1, 2), "VALID", lax.min), IMAGE),
    case("max of a product", lambda x, w: pool(x @ w, (2, 1), (1, 1), "VALID"), IMAGE, array(14, 5, 3)),
    case("gradient of max", jax.grad(lambda x: jnp.sum(pool(x, (2, 2), (1, 2), "VALID") ** 2)), IMAGE),
]


@each(CASES)
def test_windows(case):
    check(case)


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


@pytest.mark.parametrize("head", ["mean", "dense"])
@pytest.mark.parametrize("activation", [jax.nn.relu, jnp.tanh], ids=["relu", "tanh"])
def test_a_network_of_convolutions_in_reverse_costs_what_jax_takes(activation, head):
    w = array(21, 8, 8, 3, 3) / 5

    def network(x):
        for _ in range(3):
            x = activation(lax.conv_general_dilated(x, w, (1, 1), "SAME"))
        return x.mean((0, 2, 3)) if head == "mean" else x.reshape(-1) @ array(22, 8 * 12 * 12, 5)

    x = array(23, 1, 8, 12, 12)
    assert flops(symjac.jacrev(network), x) <= 1.05 * flops(jax.jacrev(network), x)
    check_against_jax(network, x, transform="jacrev", modes=("jit",), rtol=1e-4)
