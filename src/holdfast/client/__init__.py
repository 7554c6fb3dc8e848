"""The other end of a broker's sockets: `mqtt` is a session, `http` asks its administration and
reads its log.

The command line and the reading of a running broker stand on this package, and so do the clients of
the tests; it knows nothing of the broker but what goes over the wire.
"""
