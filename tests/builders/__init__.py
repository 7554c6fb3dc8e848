"""What tests are built of: logs with messages in them, and ways to serve them."""
