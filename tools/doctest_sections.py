"""For the documentation site: a doctest at the end of a docstring is an "Examples" section."""

from __future__ import annotations

import textwrap
from typing import Any

import griffe  # pyright: ignore[reportMissingImports]


class DoctestSections(griffe.Extension):
    """Puts the doctest that ends a docstring into a section of its own, so that it is shown as code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring is None or "\n\n>>> " not in obj.docstring.value:
            return
        text, example = obj.docstring.value.split("\n\n>>> ", 1)
        obj.docstring.value = f"{text}\n\nExamples:\n{textwrap.indent('>>> ' + example, '    ')}"
