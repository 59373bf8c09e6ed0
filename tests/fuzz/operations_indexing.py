"""Gathers and scatters, with static and with traced indices."""

from __future__ import annotations

from .builder import Builder, operation
from .operations_layout import axis, with_axes


def index_array(b: Builder, size: int, *, shape: tuple[int, ...] | None = None, inside: bool = False) -> str:
    """The text of an array of indices: a list, or computed from a value."""
    if size == 0:
        raise ValueError
    shape = (b.integer(1, 4),) if shape is None else shape
    count = 1
    for n in shape:
        count *= n
    low, high = (-size, size - 1) if inside or b.chance(0.85) else (-size - 2, size + 1)
    values = [b.integer(low, high) for _ in range(count)]
    static = f"np.array({values}, dtype='int32').reshape({shape})"
    if b.chance(0.6):
        return static
    if b.holomorphic or b.dtype.startswith("complex"):
        return f"jnp.asarray({static})"
    return f"(jnp.asarray({static}) + jnp.sum({b.pick()} > 0).astype('int32')) % {size}"


def index(b: Builder, name: str, *, inside: bool = False) -> str:
    """The text of an index expression."""
    parts: list[str] = []
    shape = (b.integer(1, 3),)
    for n in b.axes(name):
        kind = b.random.random()
        if kind < 0.3:
            parts.append(":")
        elif kind < 0.5 and n:
            parts.append(str(b.integer(-n, n - 1)))
        elif kind < 0.6:
            parts.append(f"{b.integer(0, n)}:")
        else:
            parts.append(index_array(b, n, shape=shape, inside=inside))
        if b.chance(0.25):
            break
    return ", ".join(parts)


@operation(2.0, holomorphic=True)
def gather(b: Builder) -> str:
    x = with_axes(b)
    return f"{x}[{index(b, x, inside=True)}]"  # Outside, the derivatives of JAX's two modes differ.


@operation(1.0, holomorphic=True)
def take(b: Builder) -> str:
    x = with_axes(b)
    place = axis(b, x)
    mode = b.one_of(("'fill'", "'clip'", "'wrap'", "None"))
    return f"jnp.take({x}, {index_array(b, b.axes(x)[place])}, axis={place}, mode={mode})"


@operation(0.7, holomorphic=True)
def at_get(b: Builder) -> str:
    x = with_axes(b)
    mode = b.one_of(("'fill', fill_value=0.5", "'clip'", "'promise_in_bounds'", "'fill'"))
    where = index_array(b, b.axes(x)[0]) if "promise" not in mode else "np.array([0, -1, 0])"
    return f"{x}.at[{where}].get(mode={mode})"


@operation(0.7, holomorphic=True)
def take_along(b: Builder) -> str:
    x = with_axes(b)
    place = axis(b, x) % len(b.axes(x))
    shape = list(b.axes(x))
    shape[place] = b.integer(1, 3)
    return f"jnp.take_along_axis({x}, {index_array(b, b.axes(x)[place], shape=tuple(shape))}, {place})"


@operation(2.0, holomorphic=True)
def scatter(b: Builder) -> str:
    x = with_axes(b)
    verbs = (
        ("set", "add", "add", "multiply", "subtract")
        if b.holomorphic
        else ("set", "add", "add", "multiply", "max", "min")
    )
    verb = b.one_of(verbs)
    where = index(b, x, inside=verb in ("max", "min"))  # JAX's rule for these reads what is dropped, too.
    kind = b.random.random()
    if kind < 0.25:
        value = "0.5"
    elif kind < 0.6:
        value = f"jnp.sin({x}[{where}])"
    else:
        value = b.pick(lambda v: v.ndim == 0)
    mode = f", mode='{b.one_of(('drop', 'clip', 'fill'))}'" if b.chance(0.2) else ""
    base = x if b.chance(0.6) else f"jnp.zeros_like({x})" if b.chance(0.7) else b.const(b.axes(x))
    unique = ", unique_indices=True" if verb == "multiply" and "array" not in where else ""
    return f"jnp.asarray({base}).at[{where}].{verb}({value}{mode}{unique})"


@operation(1.0, holomorphic=True)
def dynamic(b: Builder) -> str:
    x = with_axes(b)
    shape = b.axes(x)
    starts = []
    for n in shape:
        start = str(b.integer(-1, n))
        if not b.dtype.startswith("complex") and b.chance(0.5):
            start = f"jnp.sum({b.pick()} > 0).astype('int32') % 3"
        starts.append(start)
    text = f"({', '.join(starts)},)"
    sizes = tuple(b.integer(min(1, n), n) for n in shape)
    if b.chance(0.5):
        return f"lax.dynamic_slice({x}, {text}, {sizes})"
    update = b.operand(sizes)
    return f"lax.dynamic_update_slice({x}, {update}, {text})"


SEGMENTS = (
    "jax.ops.segment_sum({0}, {1}, num_segments=3)",
    "jnp.zeros((4, *{0}.shape[1:]), {0}.dtype).at[{1}].add({0})",
    "jax.nn.one_hot({1}, {2}, dtype={0}.dtype) @ {0}.reshape({2}, -1)",
)


@operation(0.8, holomorphic=True)
def segment(b: Builder) -> str:
    x = with_axes(b)
    n = b.axes(x)[0]
    return b.one_of(SEGMENTS).format(x, index_array(b, 3, shape=(n,)), n)


@operation(0.4)
def traced_roll(b: Builder) -> str:
    x = with_axes(b)
    return f"jnp.roll({x}, jnp.sum({b.pick()} > 0), {axis(b, x)})"
