"""Fourier transforms keep other deltas, and those there and back of an identity give a circulant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import array, flops
from jax import lax
from rule_cases import case, check, each

import symjac
from symjac import _compat

N = 6
X, COLUMNS, CUBE = array(1, N), array(2, 4, N), array(3, 5, 4, N)
Z = lax.complex(X, X[::-1])
I = np.complex64(1j)  # noqa: E741
K = jnp.arange(N // 2 + 1).astype(np.complex64)
SYMBOL = lax.complex(array(4, N), array(5, N))
PLANE = lax.complex(array(6, 1, 4, N), array(7, 1, 4, N))
fft, ifft, rfft, irfft = jnp.fft.fft, jnp.fft.ifft, jnp.fft.rfft, jnp.fft.irfft


def slope(u, n=N):
    return irfft(I * jnp.arange(n // 2 + 1).astype(np.complex64) * rfft(u, n), n)


def burgers(u):
    return -u * slope(u) + 0.1 * irfft(-(K**2) * rfft(u), N)


def channels(x):
    """Of each group of x several channels, which are summed over places, and transformed along the channels."""
    y = lax.conv_general_dilated(x[None], array(8, 4, 1, 2), (1,), "VALID", feature_group_count=2)
    return irfft(2 * I * rfft(y[0, :, 0]), 4)


CASES = [
    case("fft", lambda x: jnp.abs(fft(x)), X),
    case("fft of rows", lambda x: fft(x).real, COLUMNS),
    case("fft of columns", lambda x: fft(x, axis=0).imag, COLUMNS),
    case("complex fft", fft, Z, holomorphic=True, reverse=False),
    case("slope", slope, X),
    case("burgers", burgers, X),
    case("slope of an odd length", lambda x: slope(x[:5], 5), X),
    case("slope of squares", lambda x: jax.vmap(slope)(x * x), COLUMNS),
    case("there and back", lambda x: ifft(SYMBOL * fft(x)).real, X),
    case("back and there", lambda x: fft(SYMBOL * ifft(x)).imag, X),
    case("complex there and back", lambda x: ifft(SYMBOL * fft(jnp.sin(x))), Z, holomorphic=True, reverse=False),
    case("along the middle", lambda x: ifft(PLANE[:, :, :1] * fft(x, axis=1), axis=1).real, CUBE),
    case("a plane", lambda x: jnp.fft.irfft2(PLANE[0, :, :4] * jnp.fft.rfft2(x), (4, N)), COLUMNS),
    case("planes", lambda x: jnp.fft.ifft2(PLANE * jnp.fft.fft2(x * x)).real, CUBE),
    case("a cube", lambda x: jnp.fft.ifftn(PLANE * jnp.fft.fftn(x)).real, CUBE),
    case("of channels in groups", channels, COLUMNS[:2, :2]),
    case("reversed", lambda x: slope(x[::-1]), X),
    case("taken", lambda x: slope(x[np.array([0, 3, 3, 1, 5, 2])]), X),
    case("taken, traced", lambda x, i: slope(x[i]), X, jnp.array([4, 0, 0, 5, 1, 2])),
    case("padded", lambda x: slope(x, 10), X),
    case("padded in between", lambda x: irfft(jnp.pad(rfft(x), (0, 3)), 10) ** 2, X),
    case("padded in between, complex", lambda x: ifft(jnp.pad(fft(x), (2, 3))).real, X),
    case("spread in between", lambda x: irfft(jnp.zeros(9, SYMBOL.dtype).at[1::2].set(rfft(x)), 16), X),
    case("moved in between", lambda x: irfft(lax.pad(rfft(x), np.complex64(0), ((-1, 2, 1),))), X),
    case("cut in between", lambda x: irfft(rfft(x, 12)[:4], N), X),
    case("rolled in between", lambda x: ifft(jnp.roll(fft(x), 1)).real, X),
    case("longer back", lambda x: irfft(rfft(x), 7), X),
    case("shorter back", lambda x: irfft(rfft(x), 4), X),
    case("conjugate in between", lambda x: ifft(jnp.conj(fft(x))).real, X),
    case("real in between", lambda x: ifft(jnp.real(fft(x))).real, X),
    case("square in between", lambda x: ifft(fft(x) ** 2).real, X),
    case("sum in between", lambda x: irfft(rfft(x) + K * rfft(x**3), N), X),
    case("diagonal in between", lambda x: ifft(jnp.diag(fft(x)), axis=0).real, X),
    case("diagonal of a plane in between", lambda x: jnp.fft.ifft2(jnp.diag(fft(x))).real, X),
    case("outer product in between", lambda x: ifft(jnp.outer(fft(x), fft(x)), axis=1).real, X),
    case("convolution", lambda x, y: irfft(rfft(x) * rfft(y), N), X, X[::-1]),
    case("slope of slope", lambda x: slope(slope(x)), X),
    case("sums", lambda x: slope(jnp.outer(X, x).sum(0)), X),
]


@each(CASES)
def test_fourier(case):
    check(case)


def transforms(f, *args):
    """The numbers of entries that are transformed."""
    jaxpr, _ = _compat.opened(jax.make_jaxpr(f)(*args))
    jaxpr, _ = _compat.without_dead_code(jaxpr, [True] * len(jaxpr.invars))

    def found(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive is lax.fft_p:
                yield eqn.invars[0].aval.size
            for inner in _compat.inner_jaxprs(eqn.params):
                yield from found(inner)

    return list(found(jaxpr))


@pytest.mark.parametrize(
    "f", [slope, lambda x: slope(x * x), lambda x: ifft(SYMBOL * fft(x)).real, lambda x: fft(SYMBOL * ifft(x)).imag]
)
def test_there_and_back_transforms_a_symbol_alone(f):
    assert max(transforms(symjac.jacfwd(f), X)) <= N


def test_there_and_back_of_a_plane_makes_no_dense_matrix_of_the_first_axis():
    def f(x):
        return jnp.fft.irfft2(PLANE[0, :, :4] * jnp.fft.rfft2(x), (4, N))

    assert max(transforms(symjac.jacfwd(f), COLUMNS)) < COLUMNS.size**2 / 4


@pytest.mark.parametrize("transform", ["jacfwd", "jacrev"])
def test_a_padded_spectrum_is_not_multiplied_by_a_matrix_of_zeros_and_ones(transform):
    n, m = 64, 96

    def f(x):
        fine = irfft(jnp.pad(rfft(x), (0, (m - n) // 2)), m)
        return irfft(rfft(fine**2)[: n // 2 + 1], n)

    x = array(8, n)
    assert flops(getattr(symjac, transform)(f), x) <= 1.3 * flops(getattr(jax, transform)(f), x)


def test_other_transforms_in_between_are_transformed_in_full():
    assert max(transforms(symjac.jacfwd(lambda x: irfft(rfft(x, 12)[:4], N)), X)) > N
