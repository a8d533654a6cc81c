"""Savepoints: copies of a job's state that are taken on purpose, and kept until removed."""
