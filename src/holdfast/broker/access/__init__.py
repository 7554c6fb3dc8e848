"""Who may come in, and what they may do: credentials, rules and rates as Python decides them."""
