"""Results: numbers of cells, rows that join the replicates of a cell's blocks, tables and metrics.

A result directory holds one Parquet file and one manifest, in a folder or in an object store.
`Result` is what `evaluate` returns and what a result directory is loaded into.
"""
