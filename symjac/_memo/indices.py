"""Index arrays and masks that a function is closed over, as values that are known while tracing.

Known indices tell the structure, and compilers have better code for them. A program that knows them serves these values
only: where a second function of the same structure is closed over others, they are arguments of the program from then
on.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from symjac._memo.structure import StructuralKey

Known = Sequence[np.ndarray | None]
"""For each constant its values, or None."""

_MOST_BYTES = 2**20
_MAX_STRUCTURES = 1024
_lock = threading.Lock()
_seen: OrderedDict[StructuralKey, bytes | None] = OrderedDict()


def with_known_indices(key: StructuralKey | None, consts: Sequence[Any]) -> tuple[StructuralKey | None, Known]:
    """Returns the indices that a program of a structure may know, and the key of a program that knows them.

    Args:
        key: The key of the structure, whose constants count as arguments; None where there is none.
        consts: The constants.
    """
    known = [known_index(const) for const in consts] if key is not None else []
    if key is None or all(value is None for value in known):
        return key, ()
    digest = hashlib.blake2b(digest_size=16)
    for value in known:
        digest.update(b"-" if value is None else value.tobytes())
    found = digest.digest()
    with _lock:
        if _seen.setdefault(key, found) != found:
            _seen[key] = None
        _seen.move_to_end(key)
        if len(_seen) > _MAX_STRUCTURES:
            _seen.popitem(last=False)
        if _seen[key] is None:
            return key, ()
    return StructuralKey((key, found), key.skeleton), known


def known_index(const: Any, most_bytes: int = _MOST_BYTES) -> np.ndarray | None:
    """Returns the values of an index array or a mask that a function is closed over, where they are at hand."""
    is_concrete = isinstance(const, jax.Array | np.ndarray) and not isinstance(const, Tracer)
    if not is_concrete or not (jnp.issubdtype(const.dtype, np.integer) or const.dtype == np.bool_):
        return None
    is_here = getattr(const, "is_fully_addressable", True)
    return np.asarray(const) if is_here and const.nbytes <= most_bytes else None
