"""Connections: sockets into the inbox, control packets to whoever decides, closing."""
