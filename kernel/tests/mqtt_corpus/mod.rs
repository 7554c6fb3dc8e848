//! Valid packets of each kind and version, a seeded generator, and an inbox written down as text.

#![allow(dead_code, reason = "each test uses the part that it needs")]

use holdfast_kernel::flow::Arrivals;
use holdfast_kernel::ids::{Connection, KeySlot, Party, Timestamp};
use holdfast_kernel::limits::{CONNECT_BYTES_MAXIMUM, TURN_CONNECTION_BYTES_MAXIMUM};
use holdfast_kernel::mqtt::encode::encode;
use holdfast_kernel::mqtt::inbox::Inbox;
use holdfast_kernel::mqtt::kind::Kind;
use holdfast_kernel::mqtt::packet::{
    Acknowledgement, Answers, Connack, Connect, Packet, Publish, Reason, Subscribe, SubscriptionRequest, Unsubscribe,
    Will,
};
use holdfast_kernel::mqtt::peer::Acceptance;
use holdfast_kernel::mqtt::property::{Form, Place, Properties, Value, Walk, PROPERTIES};
use holdfast_kernel::mqtt::publishing::Publishing;
use holdfast_kernel::mqtt::{Role, Version};
use std::collections::BTreeSet;

pub const VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];
pub const PACKET_MAXIMUM: u32 = 4_096;
pub const ALIAS_MAXIMUM: u16 = 10;

/// A small generator (splitmix64): the seed says everything.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            (self.next() % bound as u64) as usize
        }
    }

    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

/// Every property that may stand at `place`, once.
fn all_properties(place: Place, role: Role) -> Properties {
    let mut properties = Properties::default();
    for property in &PROPERTIES {
        let value = match property.form {
            Form::Flag | Form::TwoBytes | Form::FourBytes | Form::Variable => Value::Number(1),
            Form::Text => Value::Text("text"),
            Form::Binary => Value::Binary(b"data"),
            Form::Pair => Value::Pair("key", "value"),
        };
        let mut tried = properties.clone();
        tried.push(property, value).unwrap();
        let mut walk = Walk::new(tried.as_bytes(), place, role);
        let allowed = loop {
            match walk.step() {
                Ok(None) => break true,
                Ok(Some(_)) => {}
                // The method comes after the data in the table's order only if it is asked for in two steps.
                Err(fault) => break fault.reason.starts_with("Authentication Data"),
            }
        };
        if allowed {
            properties = tried;
        }
    }
    properties
}

/// Packets that `role` may receive in `version`, as values.
pub fn packets(version: Version, role: Role) -> Vec<Packet> {
    let properties = |kind| match version {
        Version::V5 => all_properties(Place::Packet(kind), role),
        _ => Properties::default(),
    };
    let mut packets = messages(version, role);
    for kind in [Kind::Puback, Kind::Pubrec, Kind::Pubrel, Kind::Pubcomp] {
        let properties = properties(kind);
        let kind = match kind {
            Kind::Puback => holdfast_kernel::mqtt::kind::AcknowledgementKind::Puback,
            Kind::Pubrec => holdfast_kernel::mqtt::kind::AcknowledgementKind::Pubrec,
            Kind::Pubrel => holdfast_kernel::mqtt::kind::AcknowledgementKind::Pubrel,
            _ => holdfast_kernel::mqtt::kind::AcknowledgementKind::Pubcomp,
        };
        let bare = Properties::default();
        packets.push(Packet::Acknowledgement(Acknowledgement {
            kind,
            packet_identifier: 9,
            reason_code: 0,
            properties: bare,
        }));
        packets.push(Packet::Acknowledgement(Acknowledgement {
            kind,
            packet_identifier: 9,
            reason_code: 0,
            properties,
        }));
    }
    match role {
        Role::Server => packets.extend(from_client(version, &properties)),
        Role::Client => packets.extend(from_server(&properties)),
    }
    if version == Version::V5 {
        packets.push(Packet::Disconnect(Reason { reason_code: 0x81, properties: properties(Kind::Disconnect) }));
        packets.push(Packet::Auth(Reason { reason_code: 0x18, properties: properties(Kind::Auth) }));
    }
    packets
}

fn messages(version: Version, role: Role) -> Vec<Packet> {
    let mut packets = Vec::new();
    for (qos, retain) in [(0, false), (1, true), (2, false)] {
        let properties = match version {
            Version::V5 if retain => all_properties(Place::Packet(Kind::Publish), role),
            _ => Properties::default(),
        };
        packets.push(Packet::Publish(Publish {
            packet_identifier: u16::from(qos > 0) * 7,
            qos,
            retain,
            dup: qos == 2,
            topic_name: "site/é/reads".to_owned(),
            payload: vec![qos; 40],
            properties,
        }));
    }
    packets
}

fn from_client(version: Version, properties: &dyn Fn(Kind) -> Properties) -> Vec<Packet> {
    let new = version == Version::V5;
    let will_properties = if new { all_properties(Place::Will, Role::Server) } else { Properties::default() };
    let will =
        Will { topic_name: "will".to_owned(), payload: vec![1; 9], qos: 1, retain: true, properties: will_properties };
    let connect = Connect {
        version,
        client_identifier: "client".to_owned(),
        clean_start: true,
        keep_alive_s: 30,
        user_name: Some("name".to_owned()),
        password: Some(vec![0, 255]),
        will: Some(will),
        properties: properties(Kind::Connect),
    };
    let subscription = |filter: &str| SubscriptionRequest {
        topic_filter: filter.to_owned(),
        qos: 1,
        no_local: new && !filter.starts_with('$'),
        retain_as_published: new,
        retain_handling: u8::from(new) * 2,
    };
    let subscriptions = vec![subscription("site/+/#"), subscription("$share/group/site/#")];
    let topic_filters = vec!["a".to_owned(), "+/b".to_owned()];
    vec![
        Packet::Connect(Box::new(connect)),
        Packet::Subscribe(Subscribe { packet_identifier: 1, subscriptions, properties: properties(Kind::Subscribe) }),
        Packet::Unsubscribe(Unsubscribe {
            packet_identifier: 2,
            topic_filters,
            properties: properties(Kind::Unsubscribe),
        }),
        Packet::Pingreq,
        Packet::Disconnect(Reason { reason_code: 0, properties: Properties::default() }),
    ]
}

fn from_server(properties: &dyn Fn(Kind) -> Properties) -> Vec<Packet> {
    vec![
        Packet::Connack(Connack { session_present: false, reason_code: 0x87, properties: properties(Kind::Connack) }),
        Packet::Suback(Answers {
            packet_identifier: 1,
            reason_codes: vec![0, 1, 2, 0x80],
            properties: properties(Kind::Suback),
        }),
        Packet::Pingresp,
    ]
}

/// The same packets as bytes.
pub fn encoded(version: Version, role: Role) -> Vec<Vec<u8>> {
    packets(version, role).iter().map(|packet| encode(packet, version).unwrap()).collect()
}

/// An inbox that writes down all it decodes, and accepts and releases at once.
pub struct Recorder {
    pub inbox: Inbox,
    pub arrivals: Arrivals,
    pub version: Version,
    /// One text per packet, for each of the connections 0 and 1.
    pub found: [Vec<String>; 2],
    pub ended: [bool; 2],
}

impl Recorder {
    /// Both connections are accepted already.
    pub fn new(version: Version) -> Recorder {
        let mut recorder = Recorder::opening(version);
        recorder.accept(Connection(0), version);
        recorder.accept(Connection(1), version);
        recorder
    }

    /// Both connections begin with CONNECT.
    pub fn opening(version: Version) -> Recorder {
        let mut inbox = Inbox::default();
        inbox.open(Connection(0)).unwrap();
        inbox.open(Connection(1)).unwrap();
        let (arrivals, found, ended) = (Arrivals::default(), [Vec::new(), Vec::new()], [false; 2]);
        Recorder { inbox, arrivals, version, found, ended }
    }

    fn accept(&mut self, connection: Connection, version: Version) {
        let publishing = Publishing::new(version, u16::MAX, ALIAS_MAXIMUM, BTreeSet::new());
        let (party, maximum_packet_size_bytes) = (Party(1), PACKET_MAXIMUM);
        let acceptance =
            Acceptance { party, key_slot: KeySlot(0), version, keep_alive_s: 0, maximum_packet_size_bytes, publishing };
        self.inbox.accept(connection, acceptance).unwrap();
    }

    pub fn feed(&mut self, connection: usize, bytes: &[u8]) {
        let waiting = self.inbox.feed(Connection(connection as u32), bytes, Timestamp(1)).unwrap();
        let bound = CONNECT_BYTES_MAXIMUM + TURN_CONNECTION_BYTES_MAXIMUM;
        assert!(waiting <= bound, "{waiting} bytes wait");
    }

    /// One turn: decodes, writes down, settles, and releases what was held.
    pub fn turn(&mut self) {
        let events = self.inbox.decode(&mut self.arrivals, Timestamp(1));
        for publish in &self.arrivals.publishes {
            let text = format!(
                "publish {} {} {} {:?} {:?} {:?} {:?} {:?}",
                publish.packet_identifier,
                publish.qos,
                publish.retain,
                self.arrivals.span(publish.topic),
                self.arrivals.span(publish.properties),
                self.arrivals.span(publish.payload),
                publish.expiry_interval_s,
                publish.fate,
            );
            self.found[publish.connection.0 as usize].push(text);
        }
        for packet in &self.arrivals.acknowledgements {
            let text = format!("{:?} {} {:?}", packet.step, packet.packet_identifier, packet.refusal);
            self.found[packet.connection.0 as usize].push(text);
        }
        for connection in &self.arrivals.pings {
            self.found[connection.0 as usize].push("ping".to_owned());
        }
        for (connection, event) in events {
            let index = connection.0 as usize;
            assert!(!self.ended[index], "decoded after a fault");
            self.ended[index] = event.is_err();
            self.found[index].push(format!("{event:?}"));
            if let Ok(Packet::Connect(connect)) = &event {
                self.accept(connection, connect.version);
            }
            self.inbox.release(connection);
        }
        self.inbox.forget(&self.arrivals);
    }

    /// Turns until nothing is left to decode.
    pub fn drain(&mut self) {
        self.turn();
        while self.inbox.ready() {
            self.turn();
        }
    }
}
