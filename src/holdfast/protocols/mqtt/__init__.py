"""MQTT 3.1, 3.1.1 and 5.0: what a server decides about a connection, its session and its filters.

- `packets`: control packets with types of their own.
- `session`: the values: session, subscription, Will; how long a session is kept.
- `handshake`: CONNECT in, a refusal or an opening out, and what CONNACK says.
- `subscribe`: SUBSCRIBE and UNSUBSCRIBE in, reason codes and the new list of subscriptions out.
- `will`: when a Will is published.
- `reason_code`: the numbers of the specification.
"""
