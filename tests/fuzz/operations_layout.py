"""Operations that move entries, and reductions."""

from __future__ import annotations

import math

from .builder import MAX_ELEMENTS, SIZES, Builder, operation


def axis(b: Builder, name: str) -> int:
    """An axis of a value, at times counted from the end."""
    rank = len(b.axes(name))
    chosen = b.integer(0, rank - 1)
    return chosen - rank if b.chance(0.3) else chosen


def with_axes(b: Builder) -> str:
    """A value with at least one axis."""
    return b.pick(lambda v: v.ndim > 0)


@operation(2.0, holomorphic=True)
def reshape(b: Builder) -> str:
    x = b.pick()
    left, shape = math.prod(b.axes(x)), []
    if left == 0:
        return f"{x}.reshape({b.one_of(((0,), (0, 3), (2, 0)))})"
    for factor in (2, 3, 5):
        while left % factor == 0:
            left //= factor
            shape.append(factor)
    b.random.shuffle(shape)
    shape.extend([left] if left > 1 else [])
    while len(shape) > 1 and b.chance(0.6):
        i = b.integer(0, len(shape) - 2)
        shape[i : i + 2] = [shape[i] * shape[i + 1]]
    if b.chance(0.3):
        shape.insert(b.integer(0, len(shape)), 1)
    return f"{x}.reshape({tuple(shape)})"


@operation(1.5, holomorphic=True)
def transpose(b: Builder) -> str:
    x = b.pick(lambda v: v.ndim > 1)
    order = list(range(len(b.axes(x))))
    b.random.shuffle(order)
    return f"{x}.transpose({tuple(order)})"


@operation(1.0, holomorphic=True)
def broadcast(b: Builder) -> str:
    x = b.pick()
    shape = [b.one_of(SIZES) if n == 1 and b.chance(0.7) else n for n in b.axes(x)]
    lead = [b.one_of(SIZES)] if b.chance(0.5) else []
    if math.prod(lead + shape) > MAX_ELEMENTS:
        return f"{x}[..., None]"
    return f"jnp.broadcast_to({x}, {tuple(lead + shape)})"


@operation(0.7, holomorphic=True)
def broadcast_in_dim(b: Builder) -> str:
    x = b.pick(lambda v: v.ndim < 3)
    shape = b.axes(x)
    rank = len(shape) + b.integer(0, 2)
    places = sorted(b.random.sample(range(rank), len(shape)))
    new = [b.one_of(SIZES) for _ in range(rank)]
    for place, n in zip(places, shape, strict=True):
        new[place] = n
    return f"lax.broadcast_in_dim({x}, {tuple(new)}, {tuple(places)})"


@operation(2.0, holomorphic=True)
def sliced(b: Builder) -> str:
    x = with_axes(b)
    parts = []
    for n in b.axes(x):
        kind = b.random.random()
        if kind < 0.35 or n == 0:
            parts.append(":")
        elif kind < 0.5:
            parts.append(str(b.integer(-n, n - 1)))
        elif kind < 0.6:
            parts.append("None, :")
        else:
            start, stop = sorted((b.integer(0, n), b.integer(0, n)))
            step = b.one_of((1, 1, 2, 3))
            parts.append(f"{start}:{stop}:{step}" if b.chance(0.7) else f"{stop}:{start}:-{step}")
    return f"{x}[{', '.join(parts)}]"


LAYOUTS = (
    "jnp.flip({0}, {1})",
    "jnp.roll({0}, {2}, {1})",
    "jnp.roll({0}, -1, {1}) - 2 * {0} + jnp.roll({0}, 1, {1})",
    "jnp.diff({0}, axis={1})",
    "jnp.stack([{0}, {0} * 2], {1})",
    "jnp.repeat({0}, 2, {1})",
    "jnp.expand_dims({0}, {1})",
    "jnp.moveaxis({0}, {1}, 0)",
    "jnp.swapaxes({0}, {1}, -1)",
    "jnp.concatenate([{0}, {0}], {1})",
    "jnp.array_split({0}, 2, {1})[0]",
    "jnp.unstack({0}, axis={1})[-1]",
    "lax.slice_in_dim({0}, 1, None, axis={1})",
    "lax.index_in_dim({0}, 0, axis={1})",
    "jnp.gradient({0}, axis={1})",
    "jnp.cumsum({0}, {1})",
    "lax.cumsum({0}, {1} % {0}.ndim, reverse=True)",
    "jnp.cumprod({0}, {1})",
    "jnp.insert({0}, 1, 0.5, axis={1})",
    "jnp.delete({0}, 0, axis={1})",
    "jnp.apply_along_axis(lambda t: t * t[0], {1}, {0})",
    "jnp.resize({0}, (3, 2))",
    "jnp.tile({0}, 2)",
    "jnp.tile({0}, (2, 1))",
    "jnp.ravel({0})",
    "jnp.squeeze({0})",
    "jnp.atleast_2d({0})",
    "jnp.rot90(jnp.atleast_2d({0}))",
    "jnp.tril(jnp.atleast_2d({0}))",
    "jnp.triu(jnp.atleast_2d({0}), 1)",
    "jnp.diag({0}.ravel())",
    "jnp.diagonal(jnp.atleast_2d({0}))",
    "jnp.trace(jnp.atleast_2d({0}))",
    "jnp.array([[{0}.sum(), 1.0], [0.0, {0}.mean()]]).astype({0}.dtype)",
    "jnp.pad({0}, 1, mode='edge')",
    "jnp.pad({0}, 1, mode='wrap')",
    "jnp.pad({0}, (1, 2))",
    "jnp.ediff1d({0})",
    "jnp.average({0}, axis={1})",
    "jnp.sum({0}, {1}, where={0} != 0)",
    "jnp.sum({0}, {1}, initial=2.0)",
)


@operation(4.0, holomorphic=True)
def layout(b: Builder) -> str:
    x = with_axes(b)
    return b.one_of(LAYOUTS).format(x, axis(b, x), b.integer(-3, 3))


@operation(1.5, holomorphic=True)
def pad(b: Builder) -> str:
    x = with_axes(b)
    config = tuple((b.integer(-1, 2), b.integer(-1, 2), b.integer(0, 2) if b.chance(0.4) else 0) for _ in b.axes(x))
    fill = f"jnp.array({b.one_of((0, 1.5))}, '{b.dtype}')" if b.chance(0.8) else f"{x}.sum()"
    return f"lax.pad({x}, {fill}, {config})"


@operation(1.5, holomorphic=True)
def concatenate(b: Builder) -> str:
    x = with_axes(b)
    place = axis(b, x)
    shape = list(b.axes(x))
    parts = [x, b.operand(shape)]
    if b.chance(0.4):
        shape[place] = 1
        parts.append(b.operand(shape))
    b.random.shuffle(parts)
    return f"jnp.concatenate([{', '.join(parts)}], {place})"


@operation(0.7, holomorphic=True)
def stack(b: Builder) -> str:
    x = b.pick()
    parts = [b.operand(b.axes(x)) for _ in range(b.integer(1, 2))]
    return f"jnp.stack([{', '.join([x, *parts])}], {b.integer(0, len(b.axes(x)))})"


REDUCTIONS = (
    "jnp.sum({0}, axis={1})",
    "jnp.mean({0}, axis={1})",
    "jnp.sum({0}, axis={1}, keepdims=True)",
    "jnp.mean({0}, axis={1}, keepdims=True) - {0}",
    "jnp.prod({0}, axis={1})",
    "jnp.sum({0} ** 2, axis={1})",
)
REAL_REDUCTIONS = (
    "jnp.max({0}, axis={1})",
    "jnp.min({0}, axis={1}, keepdims=True)",
    "jnp.var({0}, axis={1})",
    "jnp.std({0}, axis={1}) + 1",
    "jax.nn.logsumexp({0}, axis={1})",
    "jax.nn.softmax({0}, axis={1})",
    "jax.nn.log_softmax({0}, axis={1})",
    "jax.nn.standardize({0}, axis={1})",
    "jnp.linalg.norm(jnp.ravel({0}))",
    "{0} / jnp.sqrt(1 + jnp.sum({0} ** 2, axis={1}, keepdims=True))",
    "jnp.median({0})",
    "jnp.quantile({0}, 0.3)",
    "jnp.ptp({0})",
    "jnp.nansum({0}, axis={1})",
    "jnp.nanmax({0}, axis={1})",
    "jnp.amax({0}) * {0}",
    "jax.nn.normalize({0}) if hasattr(jax.nn, 'normalize') else {0}",
    "jax.nn.glu(jnp.concatenate([{0}, {0}], -1), axis=-1)",
)


def some_axes(b: Builder, name: str) -> str:
    rank = len(b.axes(name))
    kind = b.random.random()
    if kind < 0.2 or rank == 0:
        return "None"
    return str(axis(b, name)) if kind < 0.7 else str(tuple(b.random.sample(range(rank), b.integer(1, rank))))


@operation(2.0, holomorphic=True)
def reduction(b: Builder) -> str:
    x = b.pick()
    return b.one_of(REDUCTIONS).format(x, some_axes(b, x))


@operation(2.0)
def real_reduction(b: Builder) -> str:
    x = with_axes(b)
    return b.one_of(REAL_REDUCTIONS).format(x, some_axes(b, x))


ALONG = (
    "lax.cummax({0}, {1} % {0}.ndim)",
    "lax.cummin({0}, {1} % {0}.ndim, reverse=True)",
    "lax.cumlogsumexp({0}, {1} % {0}.ndim)",
    "jnp.sort({0}, {1})",
    "jnp.sort({0}, axis={1}, descending=True)",
    "jnp.flip(jnp.sort(jnp.sin({0}), {1}), {1})",
    "lax.top_k({0}, 1)[0]",
    "lax.sort((jnp.sin({0}), {0}), dimension={1} % {0}.ndim, num_keys=1)[1]",
    "jnp.take_along_axis({0}, jnp.argsort({0}, {1}), {1})",
    "jnp.fft.fft({0}, axis={1}).real",
    "jnp.fft.fft({0}, axis={1})",
    "jnp.fft.rfft({0}, axis={1}).imag",
    "jnp.fft.irfft(jnp.fft.rfft({0}, axis={1}) * 2j, axis={1}, n={0}.shape[{1}])",
    "jnp.abs(jnp.fft.fft({0}, axis={1})) ** 2",
    "jnp.trapezoid({0}, axis={1})",
    "jnp.unwrap({0}, axis={1})",
    "jnp.interp({0}, jnp.arange(5.0), jnp.sin(jnp.arange(5.0)))",
    "jnp.convolve({0}.ravel(), const(1, (2,), 'float32').astype({0}.dtype), mode='same')",
    "jnp.correlate({0}.ravel(), {0}.ravel())",
    "jax.scipy.special.logsumexp({0}, axis={1}, b=2.0)",
    "jax.scipy.special.xlogy({0}, 1.5 + jnp.sin({0}))",
    "jax.scipy.special.entr(1.1 + jnp.sin({0}))",
    "jax.scipy.special.ndtr({0})",
    "jax.scipy.special.expit({0})",
    "jax.scipy.stats.norm.logpdf({0}, 0.3, 1.5)",
    "jnp.linalg.norm({0}, axis={1}, keepdims=True) + {0}",
    "jnp.cross(jnp.ravel({0})[:3], jnp.ravel({0})[-3:])",
)


@operation(2.5)
def along(b: Builder) -> str:
    x = with_axes(b)
    return b.one_of(ALONG).format(x, axis(b, x))


WINDOWS = (
    "lax.reduce_window({0}, 0.0, lax.add, {1}, {2}, '{3}')",
    "lax.reduce_window({0}, -jnp.inf, lax.max, {1}, {2}, '{3}')",
)


@operation(0.8)
def window(b: Builder) -> str:
    x = with_axes(b)
    rank = len(b.axes(x))
    windows = tuple(b.integer(1, 2) for _ in range(rank))
    strides = tuple(b.integer(1, 2) for _ in range(rank))
    text = (
        b.one_of(WINDOWS)
        .replace("0.0,", f"np.array(0, '{b.dtype}'),")
        .replace("-jnp.inf,", f"np.array(-np.inf, '{b.dtype}'),")
    )
    return text.format(x, windows, strides, b.one_of(("SAME", "VALID")))
