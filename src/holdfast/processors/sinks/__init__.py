"""Sinks that come with the library: SQLite without a server, and PostgreSQL."""
