"""Agents for assortments with prices."""
