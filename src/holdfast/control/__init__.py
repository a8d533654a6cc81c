"""The control plane: the registry of jobs, their history, and the checks before a start."""
