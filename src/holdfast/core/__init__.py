"""Values that every part shares: errors, limits, settings, ports.

Never: a socket, a file, a clock, a thread or randomness; everything of that kind is an argument.
"""
