"""What a code object names: globals, attributes and imports, of its nested code objects too."""

from __future__ import annotations

import dis
import sys
import sysconfig
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

MEMO_NAME = "__symjac_memo__"
"""The attribute of a function that holds what is remembered of it."""

IMPURE_MODULES = frozenset(
    "time random os sys datetime secrets uuid io inspect importlib gc threading contextvars subprocess socket "
    "pathlib tempfile shutil glob asyncio queue numpy.random".split()
)
"""Modules whose functions do not depend on their arguments alone."""

IMPURE_NAMES = frozenset(
    "globals locals vars eval exec open input getattr setattr delattr __import__ compile dir attrgetter "
    "__dict__ __globals__ __closure__ __defaults__ __kwdefaults__ f_globals f_locals".split()
)
"""Names through which code reaches what it does not name."""

_OWN_PATH = str(Path(__file__).parent.parent)
_GLOBAL_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL")


@dataclass(frozen=True)
class Names:
    """The names in a code object.

    Attributes:
        globals_: The names of globals and builtins.
        all_: All names: globals, attributes, methods.
        imports: The modules that it imports, or None where it imports relatively.
    """

    globals_: frozenset[str]
    all_: frozenset[str]
    imports: frozenset[str] | None

    @property
    def are_pure(self) -> bool:
        """Whether the code reaches only what it names."""
        return not self.all_ & IMPURE_NAMES and self.imports is not None


_names: weakref.WeakKeyDictionary[CodeType, Names] = weakref.WeakKeyDictionary()


def names_of(code: CodeType) -> Names:
    """Returns the names in a code object and in those nested in it."""
    found = _names.get(code)
    if found is None:
        found = _names[code] = _find_names(code)
    return found


def _find_names(code: CodeType) -> Names:
    globals_: set[str] = set()
    all_: set[str] = set()
    imports: set[str] | None = set()
    for each in _nested(code):
        all_.update(each.co_names)
        level = 0
        for instruction in dis.get_instructions(each):
            if instruction.opname in _GLOBAL_LOADS:
                globals_.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                if level or imports is None:
                    imports = None
                else:
                    imports.add(instruction.argval)
            if isinstance(instruction.argval, int) and not isinstance(instruction.argval, bool):
                level = instruction.argval  # IMPORT_NAME takes the level, then a tuple of names, from the stack.
            elif instruction.opname == "IMPORT_NAME":
                level = 0
    return Names(frozenset(globals_), frozenset(all_), None if imports is None else frozenset(imports))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _nested(const)


@lru_cache(maxsize=1)
def _installed_paths() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    installed = {paths[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    installed |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    installed.add(_OWN_PATH)
    roots = {str(Path(path)) for path in installed} | {str(Path(path).resolve()) for path in installed}
    return tuple(root.rstrip("/\\") + sep for root in roots for sep in "/\\")


@lru_cache(maxsize=4096)
def is_installed_file(name: str) -> bool:
    """Whether a file belongs to an installed package or to Python."""
    return name.startswith("<frozen") or name.startswith(_installed_paths())


def is_installed_module(module: ModuleType) -> bool:
    """Whether nobody is expected to assign to the attributes of a module."""
    path = getattr(module, "__file__", None)
    if path is not None:
        return is_installed_file(path)
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    locations = spec.submodule_search_locations  # A namespace package has no file.
    return bool(locations) and all(is_installed_file(str(path) + "/") for path in locations)


def is_installed(thing: Any) -> bool:
    """Whether a function or a class belongs to an installed package or to Python."""
    if isinstance(thing, FunctionType):
        return is_installed_file(thing.__code__.co_filename)
    if isinstance(thing, BuiltinFunctionType):
        return True
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return module is not None and is_installed_module(module)


def is_own(function: FunctionType) -> bool:
    """Whether a function is one of symjac's."""
    return function.__code__.co_filename.startswith(_OWN_PATH)


def is_impure(module_name: str | None) -> bool:
    """Whether a module's functions depend on more than their arguments."""
    name = module_name or ""
    if name in IMPURE_MODULES or name.startswith("numpy.random"):
        return True
    root = name.split(".")[0]
    return root in IMPURE_MODULES or root.lstrip("_") in IMPURE_MODULES
