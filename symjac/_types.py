"""Types that JAX has but does not show to a type checker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jax.core import ShapedArray

    class PyTreeDef:
        """A pytree without its leaves. It comes from jaxlib, which is compiled and has no stubs."""

        num_leaves: int
        num_nodes: int

        def unflatten(self, leaves: Iterable[Any], /) -> Any: ...
        def children(self) -> list[PyTreeDef]: ...
        def compose(self, inner: PyTreeDef, /) -> PyTreeDef: ...
        def node_data(self) -> tuple[type, Any] | None: ...
else:
    from jax.tree_util import PyTreeDef as PyTreeDef


def aval_of(atom: Any) -> ShapedArray:
    """Returns the type of a variable or a literal, which JAX annotates as one that may lack a shape."""
    return atom.aval
