"""Algorithms in plain NumPy, each in one file and for one customer stream."""
