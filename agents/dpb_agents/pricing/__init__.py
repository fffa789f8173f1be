"""Agents for pricing."""
