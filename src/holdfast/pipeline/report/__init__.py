"""One page that says what the tables hold, and the same as data."""
