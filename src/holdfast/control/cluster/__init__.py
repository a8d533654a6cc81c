"""A Spark standalone cluster on this machine, from the PySpark wheel."""
