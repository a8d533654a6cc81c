"""The benchmark: how fast holdfast is, next to plain Spark on the same machine and day."""
