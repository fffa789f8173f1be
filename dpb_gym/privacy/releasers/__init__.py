"""Releasers: mechanisms that take raw records and return private releases."""
