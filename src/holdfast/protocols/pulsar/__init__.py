"""Pulsar's binary protocol: what a broker decides about a connection, its topics, producers and
consumers.

- `fields`: the one list of commands, their fields and numbers.
- `commands`: bytes to commands, and commands to frames.
- `topic_names`: what a topic is called by Pulsar clients, and what in the log.
- `server_error`: the error codes, and what clients do on them.
- `refusals`: each refusal with its error code and its sentence, and the command that tells it.
- `handshake`: CONNECT in, a refusal or an opening out.
- `lookup`: answers about topics that are not touched.
- `producers`, `consumers`: what is asked for, a refusal or a value out.
"""
