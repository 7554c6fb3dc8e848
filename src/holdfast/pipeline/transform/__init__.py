"""Functions from DataFrame to DataFrame. No session, path or clock inside; a `select` at both
ends."""
