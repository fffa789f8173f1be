"""Agents for recommendation."""
