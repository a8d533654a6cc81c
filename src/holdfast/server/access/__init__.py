"""Who may do what: tokens, sessions, roles, the checks on every request, the audit log."""
