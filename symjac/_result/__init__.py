"""The structured result: a Jacobian that keeps its terms."""
