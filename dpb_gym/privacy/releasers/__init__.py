"""Mechanisms: raw records in, releases out."""
