"""What a place held when a function was traced, and whether it still holds it.

A check must not keep alive what it watches: objects are compared with a weak reference, and containers that cannot be
referred to weakly are compared element by element. Only atoms (numbers, strings, dtypes ...) are held.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MISSING = object()


class Atom:
    """An immutable value that refers to nothing: compared by identity, and held."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        """Holds the value."""
        self.value = value

    def matches(self, value: Any) -> bool:
        """Whether this is the same object."""
        return value is self.value


class Same:
    """An object compared by identity, and not kept alive."""

    __slots__ = ("ref",)

    def __init__(self, value: Any):
        """Refers to the value weakly; raises TypeError where that is impossible."""
        self.ref = weakref.ref(value)

    def matches(self, value: Any) -> bool:
        """Whether this is the same object."""
        return value is not None and value is self.ref()


@dataclass(frozen=True)
class Elements:
    """A tuple or a list with these elements."""

    kind: type
    elements: tuple[Any, ...]

    def matches(self, value: Any) -> bool:
        """Whether the value has the same type and elements."""
        if type(value) is not self.kind or len(value) != len(self.elements):
            return False
        return all(expected.matches(each) for expected, each in zip(self.elements, value, strict=True))


@dataclass(frozen=True)
class Entries:
    """A dict with these entries in this order; its keys are atoms."""

    kind: type
    keys: tuple[Any, ...]
    values: tuple[Any, ...]

    def matches(self, value: Any) -> bool:
        """Whether the value has the same type, keys, order and values."""
        if type(value) is not self.kind or tuple(value) != self.keys:
            return False
        return all(expected.matches(each) for expected, each in zip(self.values, list(value.values()), strict=True))


@dataclass(frozen=True)
class Contents:
    """A small numpy array with these contents."""

    shape: tuple[int, ...]
    dtype: np.dtype
    data: bytes

    def matches(self, value: Any) -> bool:
        """Whether the value is an array with the same contents."""
        if type(value) is not np.ndarray or value.shape != self.shape or value.dtype != self.dtype:
            return False
        return value.tobytes() == self.data


class Cells:
    """What the closure of a function, its code and its defaults must be."""

    __slots__ = ("code", "deep", "defaults", "has_none", "kwdefaults", "ref", "weak")

    def __init__(self, ref: Callable[[], Any], code: Any, defaults: Any, kwdefaults: Any, cells: list[Any]):
        """Takes an expectation for each cell, and for the defaults."""
        self.ref, self.code = ref, code
        self.defaults, self.kwdefaults = defaults, kwdefaults
        self.has_none = defaults.matches(None) and kwdefaults.matches(None)
        self.weak = tuple((i, cell.ref) for i, cell in enumerate(cells) if type(cell) is Same)
        self.deep = tuple((i, cell) for i, cell in enumerate(cells) if type(cell) is not Same)

    def unchanged(self) -> bool:
        """Whether the function reaches the same objects."""
        function = self.ref()
        if function is None or function.__code__ is not self.code:
            return False
        cells = function.__closure__
        for i, ref in self.weak:
            value = cells[i].cell_contents
            if value is None or value is not ref():
                return False
        for i, cell in self.deep:
            if not cell.matches(cells[i].cell_contents):
                return False
        if self.has_none and function.__defaults__ is None and function.__kwdefaults__ is None:
            return True
        return self.defaults.matches(function.__defaults__) and self.kwdefaults.matches(function.__kwdefaults__)


class Mapped:
    """What some keys of a namespace must hold: of globals, a module, a class or an instance."""

    __slots__ = ("absent", "atoms", "deep", "read", "ref", "size", "weak")

    def __init__(
        self,
        ref: Callable[[], Any],
        read: Callable[[Any], Mapping[str, Any]],
        entries: Mapping[str, Any],
        absent: tuple[str, ...] = (),
        size: int | None = None,
    ):
        """Takes the owner, how to get its namespace, an expectation for each key, and keys that must be absent."""
        self.ref, self.read, self.absent, self.size = ref, read, absent, size
        self.weak = tuple((key, entry.ref) for key, entry in entries.items() if type(entry) is Same)
        self.atoms = tuple((key, entry.value) for key, entry in entries.items() if type(entry) is Atom)
        self.deep = tuple((key, entry) for key, entry in entries.items() if type(entry) not in (Same, Atom))

    def unchanged(self) -> bool:
        """Whether the namespace holds the same objects."""
        owner = self.ref()
        if owner is None:
            return False
        namespace = self.read(owner)
        if self.size is not None and len(namespace) != self.size:
            return False
        for key, ref in self.weak:
            value = namespace.get(key)
            if value is None or value is not ref():
                return False
        for key, atom in self.atoms:
            if namespace.get(key, MISSING) is not atom:
                return False
        for key in self.absent:
            if key in namespace:
                return False
        for key, entry in self.deep:
            if not entry.matches(namespace.get(key, MISSING)):
                return False
        return True
