"""Workloads, and the programs that measure symjac on them."""
