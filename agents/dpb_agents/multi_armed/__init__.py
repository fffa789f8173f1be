"""Agents for the multi-armed bandit."""
