"""Agents for every problem, and what several agents share."""
