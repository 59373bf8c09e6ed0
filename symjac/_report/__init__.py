"""The report of `symjac.explain`."""
