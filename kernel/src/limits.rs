//! Every maximum of the kernel with its reason. What an operator may change is an argument instead.

/// The largest Remaining Length that four bytes can carry (MQTT 5 section 2.1.4).
pub const REMAINING_LENGTH_MAXIMUM: usize = 268_435_455;

/// The largest MQTT string or binary field (two length bytes).
pub const FIELD_BYTES_MAXIMUM: usize = 65_535;

/// The largest CONNECT that is read before anything is known of the client: enough for a Will of 64 KiB, user name,
/// password and some properties.
pub const CONNECT_BYTES_MAXIMUM: usize = 262_144;

/// User properties of one packet: more are refused, because each costs an allocation at the receiver.
pub const USER_PROPERTIES_MAXIMUM: usize = 1_024;

/// More than these that a client takes: brokers on the way add some of their own to as many as a publisher may send.
pub const USER_PROPERTIES_ADDED_MAXIMUM: usize = 64;

/// Topic filters of one SUBSCRIBE or UNSUBSCRIBE: as many as a session may have. A megabyte of the shortest would be a
/// quarter of a million.
pub const FILTERS_PER_PACKET_MAXIMUM: usize = 10_000;

/// Levels of a topic: bounds the trie's depth and so the work of one look-up.
pub const TOPIC_LEVELS_MAXIMUM: usize = 128;

/// Topics whose matches are remembered; the memory is emptied when it is full, so that topics invented by a
/// client cost a bounded amount.
pub const ROUTE_CACHE_TOPICS_MAXIMUM: usize = 65_536;

/// The longest topic name whose matches are remembered: together with the number of topics it bounds their bytes.
pub const ROUTE_CACHE_TOPIC_BYTES_MAXIMUM: usize = 1_024;

/// Targets remembered over all topics (some 50 bytes each): many subscribers to `#` times many topics are gigabytes.
pub const ROUTE_CACHE_TARGETS_MAXIMUM: usize = 1_048_576;

/// Changed filters that a remembered topic is compared with before it is looked up afresh: comparing it with so many
/// costs about as much as one look-up.
pub const ROUTE_CHANGES_MAXIMUM: usize = 64;

/// Rules of one grant: a topic that is not remembered goes through all of them.
pub const GRANT_RULES_MAXIMUM: usize = 1_024;

/// Answers of grants that are remembered, one per grant and topic: for each of 20 000 publishers a few topics. Some 32
/// bytes and the topic name each.
pub const GRANT_MEMORY_TOPICS_MAXIMUM: usize = 131_072;

/// Topic aliases that one client is sent, whatever more it would take, and ...
pub const ALIASES_SENT_MAXIMUM: u16 = 64;

/// ... the longest topic that gets one: together they bound what a connection holds for them to 16 KiB.
pub const ALIAS_TOPIC_BYTES_MAXIMUM: usize = 256;

/// Bytes of the properties that a connection's next ones are compared with: more are read each time. A trace or a hop
/// fits; what a connection holds for it is less than its aliases.
pub const FAMILIAR_BYTES_MAXIMUM: usize = 256;

/// Entries that an attached queue keeps in memory; beyond it the queue reads from the log again.
pub const QUEUE_ENTRIES_MAXIMUM: usize = 4_096;

/// Messages of one group that wait for their key's member, or for their key to move, while those of other keys go past
/// them: a slow key holds up the others only beyond so many. Some 200 bytes each.
pub const KEYS_WAITING_MAXIMUM: usize = 16_384;

/// Bytes that decode takes from one connection in one turn, so that one publisher cannot make a turn long. The topics
/// that aliases stand for count: a packet of eight bytes may name one of 65,535.
pub const TURN_CONNECTION_BYTES_MAXIMUM: usize = 1_048_576;

/// Bytes that one turn decodes over all connections; the rest waits for the next turn. Bounds the arena of a turn, so
/// that spans of 32 bits always reach.
pub const TURN_BYTES_MAXIMUM: usize = 67_108_864;

/// The same with what decoding adds: topics that aliases stand for, and what bridges make of messages.
pub const TURN_DECODED_BYTES_MAXIMUM: usize = 134_217_728;

/// Messages that are handed in to one turn: when ten thousand connections break, publishing all their Wills in one
/// would keep everybody else waiting.
pub const SUBMISSIONS_MAXIMUM: usize = 1_024;

/// Connections at one time: handles are smaller than this, since tables are indexed by them.
pub const CONNECTIONS_MAXIMUM: usize = 1_048_576;

/// Capacity of emptied outboxes that is kept for the next turn, over all connections; beyond it memory is given back.
pub const OUTBOX_SPARE_BYTES_MAXIMUM: usize = 33_554_432;

/// Bytes waiting in one connection's outbox, beyond which messages of QoS 0 to it are dropped and counted, and
/// messages of QoS 1 and 2 stay in the log. While it is half empty a message of any size goes into it.
pub const OUTBOX_BYTES_MAXIMUM: usize = 1_048_576;

/// Retained messages that are looked up for one queue in one turn.
pub const OWED_PAGE_MAXIMUM: usize = 1_024;

/// Names of retained messages that one look-up by name looks at: where a filter could match more, it is looked up by
/// offsets, some in each turn.
pub const RETAINED_LOOKS_MAXIMUM: u64 = 1_024;

/// Retained messages that such a look-up by offsets goes through at once: less than a millisecond.
pub const RETAINED_LOOKED_AT_MAXIMUM: usize = 8_192;

/// Stored bytes that one queue may look through in one turn, so that one long backlog does not delay other queues.
pub const SCAN_BYTES_MAXIMUM: u64 = 4_194_304;

/// Effort of all queues together in one turn (records looked at, topics looked up), and of whatever else the log was
/// asked since the turn before: some 2 ms. What is left waits for the next turn.
pub const SCAN_EFFORT_MAXIMUM: u64 = 20_000;

/// What queues that are behind have of a turn at least, whatever else the log was asked in it.
pub const SCAN_EFFORT_MINIMUM: u64 = 5_000;

/// Queues that ask the log for something in one turn; the others wait for the next one.
pub const SCANS_MAXIMUM: usize = 256;

/// Bytes that are allotted to one connection in one turn, as they are sent: a message with its topic, and as it is once
/// its entry is opened. What is left goes out in the next.
pub const ALLOT_BYTES_MAXIMUM: usize = 524_288;

/// Ranges of notices kept between two collections for one party and reason; beyond it the last one grows.
pub const NOTICE_RANGES_MAXIMUM: usize = 64;

/// Topics in the log's dictionary, which is kept in memory: about 100 bytes each beside their names. Messages to
/// further new topics are refused.
pub const TOPICS_MAXIMUM: usize = 10_000_000;

/// Bytes of the names of all topics together, each of which may have 65,535. Messages to further new topics are
/// refused.
pub const TOPIC_NAMES_BYTES_MAXIMUM: usize = 1_073_741_824;

/// The largest segment: positions in it have 32 bits, and its last record may reach beyond this size.
pub const SEGMENT_BYTES_MAXIMUM: u32 = 1_073_741_824;

/// Topics of one segment; one that has so many ends, however many bytes it has. Whatever looks at all topics of a
/// segment takes a few milliseconds at most.
pub const SEGMENT_TOPICS_MAXIMUM: usize = 65_536;

/// The smallest segment: less would leave no room for a footer to pay off.
pub const SEGMENT_BYTES_MINIMUM: u32 = 16_384;

/// The largest stored record: a PUBLISH of the largest Remaining Length, and its header.
pub const RECORD_BYTES_MAXIMUM: usize = 268_500_000;

/// The largest control record's key and value together.
pub const CONTROL_BYTES_MAXIMUM: usize = 16_777_216;

/// Bytes that are appended and not yet durable; beyond it publishes are refused until the disk has caught up.
pub const UNCOMMITTED_BYTES_MAXIMUM: u64 = 134_217_728;

/// Bytes of one chunk of the tail: what goes to the disk in one write.
pub const CHUNK_BYTES: usize = 1_048_576;

/// Bytes that are read from the disk at once and kept in the block cache.
pub const BLOCK_BYTES: u32 = 262_144;

/// Bytes of segment directories (which topic has records where) that are kept in memory.
pub const DIRECTORY_CACHE_BYTES: usize = 33_554_432;

/// Bytes of what is remembered of segments: which topics have messages for queues in each. At most two bytes for each
/// topic of a segment.
pub const SEGMENT_TOPICS_CACHE_BYTES: usize = 33_554_432;

/// Bytes of postings of whole segments that are kept for whoever asks for many topics; a segment of 64 MiB with
/// messages of 100 bytes has 2.5 MB.
pub const POSTINGS_CACHE_BYTES: usize = 16_777_216;

/// Bytes of what is remembered of filters: the topics that each matches, and how many messages these have in each
/// segment. A filter that matches 100 000 topics takes 16 KiB. What is forgotten is found again, in pieces.
pub const FILTER_MEMORY_BYTES_MAXIMUM: usize = 67_108_864;

/// Levels of a topic by which filters find it, from the first one on: a client that publishes to topics of 128 levels
/// costs no more memory by that than one of 16.
pub const LEVELS_INDEXED_MAXIMUM: usize = 16;

/// New topics that a remembered filter is compared with one by one; where there are more, and more than it matches
/// already, walking over the names is quicker.
pub const FILTER_CATCH_UP_MAXIMUM: u64 = 1_024;

/// Topics and positions that are remembered for all queues between scans; beyond it the queue that was looked at
/// longest ago is forgotten.
pub const SCAN_MEMORY_ENTRIES_MAXIMUM: usize = 8_388_608;

/// Bytes of positions that queues with the same filters share between scans; beyond it the window that was used longest
/// ago is merged again.
pub const WINDOW_MEMORY_BYTES_MAXIMUM: usize = 16_777_216;

/// What a remembered queue counts for besides, so that there are some thousands of them at most.
pub const SCAN_MEMORY_OVERHEAD_ENTRIES: usize = 2_048;

/// Topics with messages that are remembered for one queue; beyond it they are found anew, since to forget a million of
/// them would take long.
pub const SCAN_MEMORY_TOPICS_MAXIMUM: usize = 65_536;

/// Segments whose footers wait for whoever writes them beside the loop, with their indexes in memory; for each
/// beyond it a commit writes one.
pub const UNSEALED_SEGMENTS_MAXIMUM: usize = 4;

/// Sealed segments that go in one run of retention: the step in which they leave the log takes some microseconds each.
pub const RETAIN_SEGMENTS_MAXIMUM: usize = 64;

/// Bytes of the segments that go in one run (one segment may have more): all of them may have to be copied to one
/// carry segment, whose positions have 32 bits.
pub const RETAIN_BYTES_MAXIMUM: u64 = 1_073_741_824;

/// Filters with wildcards that one run of retention tells apart, some 150 bytes each. What further ones may match is
/// kept whatever its topic.
pub const RETENTION_FILTERS_MAXIMUM: usize = 262_144;

/// Bytes of the block cache from which retention copies: it reads each segment once, in order.
pub const CARRY_CACHE_BYTES: usize = 4_194_304;

/// Damaged places that are remembered and reported; further ones are counted.
pub const DAMAGE_REPORTS_MAXIMUM: usize = 1_000;

/// Memory of one compiled regular expression over topic names: some thousand characters of it. A text of a few
/// characters can ask for gigabytes.
pub const PATTERN_BYTES_MAXIMUM: usize = 1_048_576;

/// Messages that a receiver by permits may have without having said anything of them, if it shares its queue; beyond it
/// the receiver is given nothing. Brokers of the protocol that has such receivers have the same.
pub const CONSUMER_UNSETTLED_MAXIMUM: u64 = 50_000;

/// The same of one that takes its queue in order, which those brokers do not limit: clients say what they are done with
/// ten times a second, and this is more than a quick one has by then. Each entry is remembered until it is answered.
pub const CONSUMER_IN_ORDER_UNSETTLED_MAXIMUM: u64 = 500_000;

/// Messages of one entry: the number stands in its metadata and costs its sender nothing, and each takes an offset.
pub const ENTRY_MESSAGES_MAXIMUM: u32 = 65_536;

/// Bytes of an entry's payload once its compression is undone; what would be more is not opened. Clients put less than
/// this together, and a few kilobytes can be made to unpack to gigabytes.
pub const ENTRY_OPENED_BYTES_MAXIMUM: usize = 134_217_728;

/// Bytes of an opened entry whose memory is kept for the next one.
pub const ENTRY_OPENED_BYTES_KEPT: usize = 8_388_608;

/// The largest command of a Pulsar client that is decided on: enough for a subscription with some thousand properties.
/// What comes once for each entry may be as large as a frame.
pub const COMMAND_BYTES_MAXIMUM: usize = 262_144;

/// Producers that a connection has had, whose entries are passed over and are no fault: those that it sent before it
/// knew that they were closed.
pub const PRODUCERS_REMEMBERED_MAXIMUM: usize = 1_024;
