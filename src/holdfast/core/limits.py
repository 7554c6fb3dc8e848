"""Every maximum on the Python side that an operator may not change, with its reason.

What an operator may change is a setting (`config`); what the kernel bounds is in
`kernel/src/limits.rs`. `docs/limits.md` is generated from this file and that one.
"""

from typing import Final

STEP_BUDGET_MS: Final = 10
"""One step of the loop, whatever the broker holds: while it lasts nobody else is heard. A device
notices a tenth of a second, and several steps may follow one another before it is its turn."""

CLIENT_IDENTIFIER_BYTES_MAXIMUM: Final = 1_024
"""The specification obliges a server to take 23 [MQTT-3.1.3-5] and allows 65 535; each is a key in
the control records, in the view and in every log line, so it is kept short."""

SUBSCRIPTIONS_PER_SESSION_MAXIMUM: Final = 10_000
"""Subscriptions of one session: a queue at rest is read again by its subscriptions, so their number
bounds the work of one reconnect."""

FILTERS_PER_TURN_MAXIMUM: Final = 64
"""Topic filters of SUBSCRIBE and UNSUBSCRIBE that one turn carries out, whoever asks: some 6 us
each, and 60 us where one is below `$SYS`."""

RETAINED_LOOKED_UP_PER_TURN_MAXIMUM: Final = 2
"""Filters with wildcards whose retained messages a turn looks up as they are subscribed to, whoever
asks: some 0.1 to 1 ms each. A hundred dashboards may come back at once, with one filter each."""

SHARED_GROUPS_MAXIMUM: Final = 10_000
"""Groups of shared subscriptions: each is a queue with a control record of its own, and all of them
are looked at when the log lets old segments go."""

CURSORS_MAXIMUM: Final = 1_000
"""Cursors: each is a queue with a control record of its own and some series of metrics, and all of
them are looked at in every round of the forecast."""

CURSOR_HOLDER_CHARACTERS_MAXIMUM: Final = 200
"""Characters by which the holder of a cursor is known, and by which it calls itself: both are part
of the cursor's record."""

READERS_TAKEN_FROM_MAXIMUM: Final = 1_000
"""Readers of the log of whom it is remembered what retention has taken before they had read it: the
last ones to miss something. A query gives itself a new word each time it starts."""

TAKEN_RANGES_MAXIMUM: Final = 100
"""Ranges that one reader has missed, as they are kept apart so that none counts twice: each task of
a query and each run of retention can make one. What lies in the oldest is only a number then."""

READ_PARTS_MAXIMUM: Final = 4_096
"""Ranges that a range of the log is split into, for readers in parallel: a query has a task for
each of them, so that a thousand cores have four each. One that allows a task fewer messages than
that needs is refused."""

SHARED_MEMBERS_MAXIMUM: Final = 1_000
"""Sessions that subscribe to one group, attached or at rest: to find whose turn it is means, at
worst, to ask each of them."""

SHARED_PER_SESSION_MAXIMUM: Final = 100
"""Groups that one session is a member of: an acknowledgement of it wakes each of them, and its
window is divided among them."""

SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM: Final = 1_048_576
"""All topic filters of one session together: they are written as one control record, in which a
character may take six bytes, and the kernel's largest is 16 MiB."""

BRIDGE_FILTERS_MAXIMUM: Final = 1_000
"""Filters and excludes of a bridge in one direction: a message is compared with one after the
other, and with excludes they are rules of access, of which there may be hardly more."""

BRIDGE_EXCLUDING_MAXIMUM: Final = 100
"""Local subscriptions of a bridge with excludes: what waits for it is what some filters match, less
what others do, and each of these takes two counts more, of all filters before it. With so many a
question takes 12 ms to put, and was seen to take 240 with five hundred."""

BRIDGE_FORMER_BYTES_MAXIMUM: Final = 1_048_576
"""Filters of former settings by which a bridge's queue still reads what waited when they were
changed, with 64 bytes for each: they are part of one control record, as those of a session are. A
bridge that is changed again and again while its remote is away is not changed beyond that."""

LISTENING_HANDLES: Final = 24
"""Handles of the event loop for one listening socket, a descriptor each. The loop takes one
connection from a handle in an iteration, so this many that come together share what an iteration
costs: with one, half as many come in a second; with more than these hardly more."""

CONNECTIONS_PENDING_MAXIMUM: Final = 10_000
"""Connections that have not been accepted by CONNECT yet. A fleet that comes back at once has that
many in the handshake of TLS, which takes some 50 KiB each, so this bounds them to 500 MiB. Whoever
comes beyond is turned away and tries again."""

CONNECTIONS_PENDING_BYTES_MAXIMUM: Final = 268_435_456
"""Bytes that wait of those connections, all together: a CONNECT may have 256 KiB and never be
complete, but an honest one has some hundred bytes, with some thousand of messages behind it."""

CONNECT_TIMEOUT_S: Final = 10
"""How long a new connection may take to send CONNECT, with everything that comes before it: the
header of a proxy, the handshakes of TLS and WebSocket. The specification asks for a reasonable time
[MQTT-3.1.4-1], and a device on a slow radio needs a few round trips."""

DIALLED_ADDRESSES_MAXIMUM: Final = 8
"""Addresses of a remote broker's name that one attempt tries, one after the other: they share
CONNECT_TIMEOUT_S, and each needs the time of a few round trips."""

HANDSHAKES_AT_ONCE: Final = 2
"""Handshakes of TLS whose next step is done at the same time, on threads of their own: each takes a
core for about a millisecond."""

HANDSHAKE_READ_BYTES: Final = 16_384
"""What one read takes of a connection whose handshake of TLS is not over, and so what is kept of it
while it waits for its next step. A message of a handshake seldom has more; with as many connections
as may be pending this comes to 160 MB."""

STOP_TIMEOUT_S: Final = 5
"""How long a clean stop waits for connections to take what is written to them, so that SIGTERM ends
the broker within seconds."""

READ_BUFFER_BYTES: Final = 262_144
"""The one buffer that all sockets read into. A larger one would not fill in one system call."""

WEBSOCKET_READ_BYTES: Final = 65_536
"""What one read of a WebSocket takes: each frame costs some microseconds, and this many bytes of
the smallest are less than a tenth of a second."""

WEBSOCKET_REQUEST_BYTES_MAXIMUM: Final = 16_384
"""The request that begins a WebSocket; a browser with many cookies sends half of it."""

PROXY_HEADER_BYTES_MAXIMUM: Final = 4_096
"""A header of the PROXY protocol; addresses take 232 bytes, and the rest is names that a proxy
adds."""

LEDGER_ROWS_MAXIMUM: Final = 1_000_000
"""Rows of the loss ledger that the view keeps; ranges, not messages, so this is years of trouble.
Older rows go first, and their number is kept."""

STAGED_BYTES_MAXIMUM: Final = 4_294_967_296
"""Bytes of the parts of batches that lie beside the log until they are committed: some twenty
million rows of a writer. Where there are more, who stages one is told to come back, until a batch
is in the log or a part is too old."""

STAGED_PART_BYTES_MAXIMUM: Final = 33_554_432
"""One part of a batch, as it comes and as it is kept. It is in memory for a moment on its way in
and on its way to the log, so with the number of those at once this bounds a writer's memory."""

STAGED_PARTS_MAXIMUM: Final = 65_536
"""Parts that lie beside the log: each is a file, and a row of some 300 bytes in memory."""

STAGED_AGE_MAXIMUM_S: Final = 86_400
"""How long a part lies there. A batch that no driver has committed within a day will not be; until
then it may be the work of hours of a cluster."""

STAGINGS_AT_ONCE: Final = 4
"""Parts that are taken in at the same time; the next one waits before its bytes are read. Two cores
do no more, and each takes three times the bytes of a part while its rows are checked."""

BATCHES_AT_ONCE: Final = 64
"""Batches that enter the log at the same time, each with one part in memory; they take turns. Who
commits one more is told to come back."""

BATCH_PARTS_MAXIMUM: Final = 10_000
"""Parts of one batch: their names are one control record, which is written again as the batch comes
on, some 400 KiB with so many."""

BATCH_ROWS_PER_TURN: Final = 2_048
"""Rows of batches that enter in one turn: some two microseconds each, so that others are heard
meanwhile."""

BATCH_BYTES_PER_TURN: Final = 1_048_576
"""Bytes of rows of batches that enter in one turn, beyond the one row that passes it."""

BATCH_UNCOMMITTED_BYTES_MAXIMUM: Final = 33_554_432
"""Bytes that may wait for the disk while rows of batches enter. It is a quarter of what the log
takes, so that a batch never makes it refuse a device's message."""

PRODUCERS_MAXIMUM: Final = 100_000
"""Producers whose last sequence number is remembered, some 200 bytes each. A new one beyond them is
told to come back, until one is forgotten."""

PRODUCER_KEPT_S: Final = 7_776_000
"""How long a producer is remembered that does not come again: a stream that was stopped for a
quarter of a year and starts again is still taken once."""

PRODUCER_OF_ONE_BATCH_KEPT_S: Final = 86_400
"""The same for one that comes with a single batch: a driver that did not hear the answer asks again
within minutes."""

PRODUCER_NAME_BYTES_MAXIMUM: Final = 1_024
"""The longest name of a producer, as of a client: it is a key in the control records."""

ENVIRONMENTS_MAXIMUM: Final = 64
"""Environments that are known, from the settings and from what clients say: each is a label of
metrics, and a few companies have ten."""

CONFIGURATION_BYTES_MAXIMUM: Final = 1_048_576
"""The largest configuration file that is read; a larger one is a mistake in the path."""

USER_NAME_BYTES_MAXIMUM: Final = 1_024
"""The longest name of a credential, and the longest pattern of client identifiers: as long as a
client identifier may be, for the same reasons. A CONNECT with a longer user name matches none."""

RULES_PER_OWNER_MAXIMUM: Final = 256
"""Access rules of one user. The kernel looks through them in order for each topic that it has not
seen of a client yet, so their number bounds that work."""

RULE_FILTER_BYTES_MAXIMUM: Final = 1_024
"""The longest topic filter of an access rule; with the number of rules it bounds what one client's
grants hold in memory."""

CREDENTIALS_BY_IDENTIFIER_MAXIMUM: Final = 100
"""Credentials that a client identifier alone proves: each is a pattern that the identifier of every
client without a user name is compared with."""

PASSWORD_CHECKS_AT_ONCE: Final = 2
"""Passwords that are checked at the same time, on threads of their own: each takes a core for some
tens of milliseconds and 19 MiB."""

PASSWORD_CHECKS_WAITING_MAXIMUM: Final = 128
"""Passwords that wait to be checked: at 20 a second and thread they are through in some three
seconds, well within the time that a CONNECT may take. Others are told to come back."""

PASSWORDS_REMEMBERED_MAXIMUM: Final = 100_000
"""Passwords that were found right and are recognised again without the cost of a check, so that a
fleet may reconnect at once. Each is a keyed digest of 32 bytes and a user name."""

LOGIN_FAILURES_TRACKED_MAXIMUM: Final = 65_536
"""Addresses and users whose failed logins are counted; the longest quiet one makes room."""

PULSAR_SUBSCRIPTIONS_MAXIMUM: Final = 10_000
"""Durable subscriptions of Pulsar: each is a queue with a control record of its own, and all of
them are looked at when the log lets old segments go."""

PULSAR_CONSUMERS_PER_SUBSCRIPTION_MAXIMUM: Final = 1_000
"""Consumers of one subscription: to find whose turn it is means, at worst, to ask each of them."""

PULSAR_CONSUMERS_PER_CONNECTION_MAXIMUM: Final = 10_000
"""Consumers of one connection, which a client with a pattern of topics has by the thousand; each is
a few hundred bytes, and leaves when the connection does, in one step of the loop."""

PULSAR_PRODUCERS_PER_CONNECTION_MAXIMUM: Final = 10_000
"""Producers of one connection, for the same reasons."""

LISTED_TOPICS_BYTES_MAXIMUM: Final = 1_048_576
"""Bytes of the names with which a Pulsar client is answered that asks for a namespace's topics."""

SUBSCRIPTION_NAME_BYTES_MAXIMUM: Final = 1_024
"""The longest name of a Pulsar subscription, and of a consumer: as of a client, and for the same
reasons."""
