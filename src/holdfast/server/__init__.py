"""`holdfast server`: a window on the registry, and a remote control.

It owns no job: supervisors run jobs, processes of their own carry operations out, and the
registry keeps both. So it may be killed and started again at any time.
"""
