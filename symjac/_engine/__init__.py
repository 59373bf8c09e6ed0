"""The engine: a linear program, and the interpreter that pushes structured tangents through it."""
