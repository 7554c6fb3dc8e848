"""Control records and their view, what waits for the disk, retention, recovery.

The log itself is the kernel's; here is what Python decides about it.
"""
