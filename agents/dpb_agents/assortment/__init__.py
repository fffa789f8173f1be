"""Agents for assortment."""
