"""The memo: what is traced and compiled once."""
