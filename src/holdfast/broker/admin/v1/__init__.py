"""What can be asked over HTTP, by subject: the operations of version 1."""
