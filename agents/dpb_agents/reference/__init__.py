"""Reference agents: each paper's algorithm in one file of plain NumPy, for one customer stream."""
