"""Exchange of results: archives of one agent's results, their import, and verification.

An archive is a result directory in a zip file. Importing it adds all of its rows to another
result directory or none. Verification checks digests and computes cells again, bit for bit.
"""
