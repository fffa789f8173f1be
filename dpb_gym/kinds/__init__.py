"""Kinds of problems: one module has all that the library needs to know of a kind.

A module has the `Kind` (actions, display, responses in a session, search for the best action), its
Gymnasium action modes, the adversarial customers of audits, and the form of logs with the words of
advice. `dpb_gym.problems.kinds` names these modules and imports them on first use.
"""
