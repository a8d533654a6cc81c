"""Fault drills: break a running job at an exact moment, and prove that nothing was lost.

Each drill starts a small supervised job, injects one fault, waits until the job has recovered,
and checks three things: that the fault really fired, that the attempts ended as they should,
and that every row is in the output exactly once.
"""
