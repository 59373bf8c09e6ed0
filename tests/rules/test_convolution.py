"""Convolutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import array, check_against_jax, flops
from jax import lax
from rule_cases import case, check, each

import symjac


def convolution(name, x, w, *args, **options):
    """A case for both arguments, the left one after a sine."""
    return case(f"conv {name}", lambda x, w: lax.conv_general_dilated(jnp.sin(x), w, *args, **options), x, w)


def deep(x, *weights, stride=1):
    for w in weights:
        x = jnp.tanh(lax.conv_general_dilated(x, w, (stride,), "SAME"))
    return x


def groups(x, w):
    return lax.conv_general_dilated((x @ w)[None], array(14, 4, 1, 3), (2,), "SAME", feature_group_count=2)


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
]


@each(CASES)
def test_convolution(case):
    check(case)


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
