//! Control packets as values (MQTT 5 section 3). Older versions are the same values with fields left at their defaults.

use super::kind::{AcknowledgementKind, Kind};
use super::property::Properties;
use super::Version;

/// Any control packet.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Connect(Box<Connect>),
    Connack(Connack),
    Publish(Publish),
    Acknowledgement(Acknowledgement),
    Subscribe(Subscribe),
    Suback(Answers),
    Unsubscribe(Unsubscribe),
    Unsuback(Answers),
    Pingreq,
    Pingresp,
    Disconnect(Reason),
    Auth(Reason),
}

impl Packet {
    /// The packet's kind.
    pub fn kind(&self) -> Kind {
        match self {
            Packet::Connect(_) => Kind::Connect,
            Packet::Connack(_) => Kind::Connack,
            Packet::Publish(_) => Kind::Publish,
            Packet::Acknowledgement(acknowledgement) => acknowledgement.kind.into(),
            Packet::Subscribe(_) => Kind::Subscribe,
            Packet::Suback(_) => Kind::Suback,
            Packet::Unsubscribe(_) => Kind::Unsubscribe,
            Packet::Unsuback(_) => Kind::Unsuback,
            Packet::Pingreq => Kind::Pingreq,
            Packet::Pingresp => Kind::Pingresp,
            Packet::Disconnect(_) => Kind::Disconnect,
            Packet::Auth(_) => Kind::Auth,
        }
    }
}

/// CONNECT (section 3.1). Clean Session of older versions is `clean_start`.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    pub version: Version,
    pub client_identifier: String,
    pub clean_start: bool,
    pub keep_alive_s: u16,
    pub user_name: Option<String>,
    pub password: Option<Vec<u8>>,
    pub will: Option<Will>,
    pub properties: Properties,
}

/// The Will of a CONNECT (sections 3.1.3.2 to 3.1.3.4).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    pub topic_name: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub properties: Properties,
}

/// CONNACK (section 3.2).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connack {
    pub session_present: bool,
    pub reason_code: u8,
    pub properties: Properties,
}

/// PUBLISH (section 3.3) on its own; on the hot path it stays where it arrived ([`crate::flow::Publish`]).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// 0 at QoS 0.
    pub packet_identifier: u16,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub topic_name: String,
    pub payload: Vec<u8>,
    pub properties: Properties,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    pub kind: AcknowledgementKind,
    pub packet_identifier: u16,
    pub reason_code: u8,
    pub properties: Properties,
}

/// SUBSCRIBE (section 3.8).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    pub packet_identifier: u16,
    pub subscriptions: Vec<SubscriptionRequest>,
    pub properties: Properties,
}

/// One subscription that SUBSCRIBE asks for (section 3.8.3).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionRequest {
    pub topic_filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: u8,
}

/// SUBACK or UNSUBACK (sections 3.9 and 3.11).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    pub packet_identifier: u16,
    pub reason_codes: Vec<u8>,
    pub properties: Properties,
}

/// UNSUBSCRIBE (section 3.10).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    pub packet_identifier: u16,
    pub topic_filters: Vec<String>,
    pub properties: Properties,
}

/// DISCONNECT or AUTH (sections 3.14 and 3.15).
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub reason_code: u8,
    pub properties: Properties,
}
