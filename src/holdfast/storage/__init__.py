"""Files that survive a crash: atomic writes, the sinks' commit log, the embedded log."""
