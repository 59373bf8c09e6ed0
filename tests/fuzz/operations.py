"""All operations: importing this registers them."""

from . import (  # noqa: F401
    operations_contraction,
    operations_control,
    operations_elementwise,
    operations_indexing,
    operations_layout,
)
