"""What takes queued messages, and what writes them into a database, beside other ways to do it."""
