"""Sockets and the layers below a connection, for every protocol: TLS, WebSocket, PROXY, Unix."""
