"""Jobs and flows: what a user declares."""
