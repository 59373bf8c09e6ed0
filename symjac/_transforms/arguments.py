"""The arguments of a call: which leaves are arrays, which are differentiated, and what else the call depends on."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import tree_flatten, tree_structure, tree_unflatten

from symjac._compat import ArrayImpl
from symjac._types import PyTreeDef

Argnums = int | Sequence[int]


@dataclass(frozen=True)
class Call:
    """The arguments of one call, taken apart.

    Attributes:
        leaves: The array leaves; the differentiated ones among them were made arrays.
        active: The positions, among the leaves, of the differentiated ones, in the order of `argnums`.
        active_tree: The tree of the tuple of differentiated arguments.
        rebuild: Gives the positional and the keyword arguments for other leaves. What holds no array leaf is passed
            on as it is.
    """

    leaves: list[Array]
    active: tuple[int, ...]
    active_tree: PyTreeDef
    rebuild: Callable[[Sequence[Array]], tuple[list[Any], dict[str, Any]]]


def normalised_argnums(argnums: Any) -> int | tuple[int, ...]:
    """Returns an index, or a tuple of indices, as Python integers.

    Raises:
        TypeError: where it is neither.
    """
    try:
        return operator.index(argnums)
    except TypeError:
        return tuple(map(operator.index, argnums))


def leaves_and_key(args: Sequence[Any], kwargs: dict[str, Any], argnums: tuple[int, ...]) -> tuple[list[Array], Any]:
    """Returns the array leaves of a call, and a key that holds all else that the call depends on.

    The key is None where an argument is of a kind that may change without notice.

    Raises:
        ValueError: where `argnums` is out of range.
        TypeError: where a leaf to be differentiated is no array and no number.
    """
    flat, tree = tree_flatten((args, kwargs))
    for leaf in flat:
        if type(leaf) is not ArrayImpl:
            return _mixed_leaves_and_key(flat, tree, argnums)
    return flat, (tree, *[leaf.aval for leaf in flat])


def _mixed_leaves_and_key(flat: Sequence[Any], tree: PyTreeDef, argnums: tuple[int, ...]) -> tuple[list[Array], Any]:
    selected = set(_selected(tree, argnums))
    leaves, key = [], []
    for i, leaf in enumerate(flat):
        if i in selected and not isinstance(leaf, Array):
            leaf = as_array(leaf)
        if isinstance(leaf, Array):
            leaves.append(leaf)
            key.append(jax.typeof(leaf))
        else:
            key.append(static_key(leaf))
    return leaves, None if any(part is None for part in key) else (tree, *key)


def as_array(leaf: Any) -> Array:
    """Returns a number or a numpy array as an array of JAX, with the weak type that JAX gives it.

    Raises:
        TypeError: where it is neither.
    """
    jax.typeof(leaf)
    return jnp.asarray(np.array(leaf) if isinstance(leaf, np.ndarray) else leaf)  # A copy: its owner may write to it.


def static_key(leaf: Any) -> Hashable | None:
    """Returns what identifies an argument that is passed on as it is, or None where it might change."""
    kind = type(leaf)
    if kind is float:
        return kind, leaf, math.copysign(1.0, leaf)
    if kind in (bool, int, str, bytes) or isinstance(leaf, (enum.Enum, np.dtype)):
        return kind, leaf
    return None


def split(args: Sequence[Any], kwargs: dict[str, Any], argnums: tuple[int, ...], leaves: Sequence[Array]) -> Call:
    """Takes a call apart, whose array leaves `leaves_and_key` has given.

    Raises:
        ValueError: where `argnums` is out of range.
    """
    flat, tree = tree_flatten((args, kwargs))
    selected = _selected(tree, argnums)
    is_array = [i in selected or isinstance(leaf, Array) for i, leaf in enumerate(flat)]
    position = dict(zip((i for i, keep in enumerate(is_array) if keep), range(len(leaves)), strict=True))
    chosen = {index % len(args) for index in argnums}
    pieces = [_piece(arg, i in chosen) for i, arg in enumerate(args)]
    keywords = {name: _piece(kwargs[name], False) for name in sorted(kwargs)}

    def rebuild(leaves: Sequence[Array]) -> tuple[list[Any], dict[str, Any]]:
        remaining = iter(leaves)
        return [piece(remaining) for piece in pieces], {name: piece(remaining) for name, piece in keywords.items()}

    active = tuple(position[i] for i in selected)
    return Call(list(leaves), active, tree_structure(tuple(args[index] for index in argnums)), rebuild)


def _piece(arg: Any, chosen: bool) -> Callable[[Any], Any]:
    """Returns a function that rebuilds one argument from the array leaves that are left."""
    flat, tree = tree_flatten(arg)
    is_array = [chosen or isinstance(leaf, Array) for leaf in flat]
    if not any(is_array) and not chosen:
        return lambda remaining: arg

    def rebuild(remaining: Any) -> Any:
        pairs = zip(flat, is_array, strict=True)
        return tree_unflatten(tree, [next(remaining) if keep else leaf for leaf, keep in pairs])

    return rebuild


def _selected(tree: PyTreeDef, argnums: tuple[int, ...]) -> list[int]:
    """Returns the positions of the leaves of the chosen arguments, in the order of `argnums`."""
    counts = [child.num_leaves for child in tree.children()[0].children()]
    starts = np.cumsum([0, *counts])
    positions: list[int] = []
    for index in argnums:
        if not -len(counts) <= index < len(counts):
            raise ValueError(
                f"argnums must be at least -len(args) and less than len(args), but got {index} for {len(counts)} "
                "positional arguments."
            )
        positions.extend(range(starts[index % len(counts)], starts[index % len(counts)] + counts[index]))
    return positions
