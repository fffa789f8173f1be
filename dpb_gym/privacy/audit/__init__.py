"""Audits: lower bounds on the privacy that a mechanism really gives, from its outputs."""
