"""What an operator does to a running broker, on a real one."""
