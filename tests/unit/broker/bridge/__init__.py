"""Parts of bridges to other brokers, alone."""
