//! Bytes to control packets, each check with the statement it follows.
//!
//! Owns: what the specifications of 3.1, 3.1.1 and 5.0 allow inside one packet. Never: what they allow between packets
//! (`inbox`), or policy.

use super::fault::{Decoded, Fault};
use super::frame::Frame;
use super::kind::{AcknowledgementKind, Kind};
use super::packet::{
    Acknowledgement, Answers, Connack, Connect, Packet, Publish, Reason, Subscribe, SubscriptionRequest, Unsubscribe,
    Will,
};
use super::property::{Place, Properties};
use super::publish::{Familiar, Layout};
use super::reader::{Reader, NOT_MINIMAL};
use super::{reason_code, Role, Version};
use crate::limits::FILTERS_PER_PACKET_MAXIMUM;

/// Decodes one whole packet: `body` is what follows the fixed header. CONNECT brings its own version.
pub fn decode(frame: &Frame, body: &[u8], version: Version, role: Role) -> Decoded<Packet> {
    let kind = frame.kind()?;
    refuse_kind(kind, version, role)?;
    // MQTT 3.1 calls these flags unused, and sets DUP in some packets that are sent again.
    let with_flags = kind != Kind::Publish && (version > Version::V31 || kind == Kind::Connect);
    if with_flags && frame.flags() != kind.reserved_flags() {
        return Err(Fault::malformed("reserved flags of the fixed header [MQTT-2.1.3-1]"));
    }
    if kind != Kind::Connect && version == Version::V5 && !frame.minimal {
        return Err(NOT_MINIMAL);
    }
    let mut reader = Reader::new(body);
    let packet = match kind {
        Kind::Connect => Packet::Connect(Box::new(connect(&mut reader, role, frame.minimal)?)),
        Kind::Connack => Packet::Connack(connack(&mut reader, version, role)?),
        Kind::Publish => return publish(frame, body, version, role).map(Packet::Publish),
        Kind::Puback => acknowledgement(&mut reader, AcknowledgementKind::Puback, version, role)?,
        Kind::Pubrec => acknowledgement(&mut reader, AcknowledgementKind::Pubrec, version, role)?,
        Kind::Pubrel => acknowledgement(&mut reader, AcknowledgementKind::Pubrel, version, role)?,
        Kind::Pubcomp => acknowledgement(&mut reader, AcknowledgementKind::Pubcomp, version, role)?,
        Kind::Subscribe => Packet::Subscribe(subscribe(&mut reader, version, role)?),
        Kind::Suback => Packet::Suback(answers(&mut reader, kind, version, role)?),
        Kind::Unsubscribe => Packet::Unsubscribe(unsubscribe(&mut reader, version, role)?),
        Kind::Unsuback => Packet::Unsuback(answers(&mut reader, kind, version, role)?),
        Kind::Pingreq => Packet::Pingreq,
        Kind::Pingresp => Packet::Pingresp,
        Kind::Disconnect => Packet::Disconnect(reason(&mut reader, kind, version, role)?),
        Kind::Auth => Packet::Auth(reason(&mut reader, kind, version, role)?),
    };
    ended(&reader)?;
    Ok(packet)
}

fn ended(reader: &Reader<'_>) -> Decoded<()> {
    if reader.is_empty() {
        Ok(())
    } else {
        Err(Fault::malformed("bytes after the last field of a packet"))
    }
}

/// Table 2-1: which packets flow in which direction.
fn refuse_kind(kind: Kind, version: Version, role: Role) -> Decoded<()> {
    let from_server = matches!(kind, Kind::Connack | Kind::Suback | Kind::Unsuback | Kind::Pingresp);
    let from_client = matches!(kind, Kind::Connect | Kind::Subscribe | Kind::Unsubscribe | Kind::Pingreq);
    match role {
        _ if kind == Kind::Auth && version < Version::V5 => {
            Err(Fault::malformed("packet type 15 (MQTT 3.1.1 section 2.2.1)"))
        }
        Role::Server if from_server => Err(Fault::protocol("a packet that only servers send (MQTT 5 section 2.1.2)")),
        Role::Client if from_client => Err(Fault::protocol("a packet that only clients send (MQTT 5 section 2.1.2)")),
        Role::Client if kind == Kind::Disconnect && version < Version::V5 => {
            Err(Fault::protocol("a packet that only clients send (MQTT 3.1.1 section 2.2.1)"))
        }
        _ => Ok(()),
    }
}

fn properties(reader: &mut Reader<'_>, version: Version, place: Place, role: Role) -> Decoded<Properties> {
    if version < Version::V5 {
        return Ok(Properties::default());
    }
    let size = reader.variable()?;
    let bytes = reader.take(usize::try_from(size).unwrap_or(usize::MAX))?;
    Properties::checked(bytes, place, role)
}

fn packet_identifier(reader: &mut Reader<'_>) -> Decoded<u16> {
    match reader.two_bytes()? {
        0 => Err(Fault::protocol("packet identifier 0 [MQTT-2.2.1-3]")),
        packet_identifier => Ok(packet_identifier),
    }
}

fn allowed_reason(kind: Kind, code: u8, role: Role) -> Decoded<u8> {
    if reason_code::is_allowed(kind, code, role) {
        Ok(code)
    } else {
        Err(Fault::protocol("a reason code that this packet does not have (MQTT 5 section 2.4)"))
    }
}

fn connect(reader: &mut Reader<'_>, role: Role, minimal: bool) -> Decoded<Connect> {
    let name = reader.binary()?;
    let level = reader.byte()?;
    let version = protocol_version(name, level)?;
    let read = |reader: &mut Reader<'_>| {
        if version == Version::V5 && !minimal {
            return Err(NOT_MINIMAL);
        }
        connect_fields(reader, version, role).and_then(|fields| ended(reader).map(|()| fields))
    };
    read(reader).map_err(|fault| fault.in_version(version))
}

/// [MQTT-3.1.2-1] [MQTT-3.1.2-2]; MQTT 3.1 section 3.1. What is not spoken here is answered in the nearest version.
/// Bridges of Mosquitto set the highest bit, and come again without it if they understand the answer.
fn protocol_version(name: &[u8], level: u8) -> Decoded<Version> {
    let unsupported = Fault::new(
        reason_code::UNSUPPORTED_PROTOCOL_VERSION,
        "a protocol name and version that are not MQTT 3.1, 3.1.1 or 5.0 [MQTT-3.1.2-2]",
    );
    match Version::from_level(level) {
        Some(version) if version.protocol_name().as_bytes() == name => Ok(version),
        _ if name == b"MQTT" && level & 0x7F >= 5 => Err(unsupported.in_version(Version::V5)),
        _ if name == b"MQTT" || name == b"MQIsdp" => Err(unsupported.in_version(Version::V311)),
        _ => Err(unsupported),
    }
}

fn connect_fields(reader: &mut Reader<'_>, version: Version, role: Role) -> Decoded<Connect> {
    let flags = reader.byte()?;
    let has = |bit: u8| flags & bit != 0;
    let (with_user_name, with_password, with_will) = (has(0x80), has(0x40), has(0x04));
    let will_qos = (flags >> 3) & 0b11;
    if has(0x01) && version > Version::V31 {
        return Err(Fault::malformed("the reserved flag of CONNECT [MQTT-3.1.2-3]"));
    }
    if will_qos == 3 {
        return Err(Fault::malformed("a Will with QoS 3 [MQTT-3.1.2-12]"));
    }
    if !with_will && flags & 0x38 != 0 {
        return Err(Fault::malformed("Will QoS or Will Retain without a Will [MQTT-3.1.2-11] [MQTT-3.1.2-13]"));
    }
    if with_password && !with_user_name && version < Version::V5 {
        return Err(Fault::malformed("a password without a user name (MQTT 3.1.1 [MQTT-3.1.2-22])"));
    }
    let keep_alive_s = reader.two_bytes()?;
    let properties = properties(reader, version, Place::Packet(Kind::Connect), role)?;
    let client_identifier = reader.text()?.to_owned();
    let will = if with_will { Some(will(reader, version, role, will_qos, has(0x20))?) } else { None };
    let user_name = if with_user_name { Some(reader.text()?.to_owned()) } else { None };
    let password = if with_password { Some(reader.binary()?.to_vec()) } else { None };
    let clean_start = has(0x02);
    Ok(Connect { version, client_identifier, clean_start, keep_alive_s, user_name, password, will, properties })
}

fn will(reader: &mut Reader<'_>, version: Version, role: Role, qos: u8, retain: bool) -> Decoded<Will> {
    let properties = properties(reader, version, Place::Will, role)?;
    let topic_name = reader.text()?.to_owned();
    if !crate::topic::is_valid_name(topic_name.as_bytes()) {
        return Err(Fault::new(
            reason_code::TOPIC_NAME_INVALID,
            "a Will Topic that is no topic name (MQTT 5 section 4.7)",
        ));
    }
    let payload = reader.binary()?.to_vec();
    Ok(Will { topic_name, payload, qos, retain, properties })
}

fn connack(reader: &mut Reader<'_>, version: Version, role: Role) -> Decoded<Connack> {
    let flags = reader.byte()?;
    // MQTT 3.1 leaves this byte without meaning.
    if flags > 1 && version > Version::V31 {
        return Err(Fault::malformed("the reserved flags of CONNACK [MQTT-3.2.2-1]"));
    }
    let code = reader.byte()?;
    let reason_code = if version < Version::V5 {
        reason_code::from_connack_return_code(code)
            .ok_or_else(|| Fault::protocol("a reserved return code (MQTT 3.1.1 section 3.2.2.3)"))?
    } else {
        allowed_reason(Kind::Connack, code, role)?
    };
    let session_present = flags == 1 && version > Version::V31;
    if session_present && reason_code != reason_code::SUCCESS {
        return Err(Fault::protocol("Session Present in a refusal [MQTT-3.2.2-6]"));
    }
    let properties = properties(reader, version, Place::Packet(Kind::Connack), role)?;
    Ok(Connack { session_present, reason_code, properties })
}

fn publish(frame: &Frame, body: &[u8], version: Version, role: Role) -> Decoded<Publish> {
    let layout = Layout::read(frame.flags(), body, version, role, &mut Familiar::default())?;
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned);
    let topic_name = text(body.get(layout.topic.clone()).unwrap_or_default())
        .map_err(|_| Fault::malformed("a topic name that is not UTF-8 [MQTT-1.5.4-1]"))?;
    let bytes = body.get(layout.properties.clone()).unwrap_or_default();
    Ok(Publish {
        packet_identifier: layout.packet_identifier,
        qos: layout.qos,
        retain: layout.retain,
        dup: layout.dup,
        topic_name,
        payload: body.get(layout.payload..).unwrap_or_default().to_vec(),
        properties: Properties::checked(bytes, Place::Packet(Kind::Publish), role)?,
    })
}

fn acknowledgement(
    reader: &mut Reader<'_>,
    kind: AcknowledgementKind,
    version: Version,
    role: Role,
) -> Decoded<Packet> {
    let packet_identifier = packet_identifier(reader)?;
    let reason = shortened_reason(reader, kind.into(), version, role)?;
    Ok(Packet::Acknowledgement(Acknowledgement {
        kind,
        packet_identifier,
        reason_code: reason.reason_code,
        properties: reason.properties,
    }))
}

/// A reason code and properties, of which the end may be left out (sections 3.4.2.1, 3.14.2.1 and 3.15.2.1).
fn shortened_reason(reader: &mut Reader<'_>, kind: Kind, version: Version, role: Role) -> Decoded<Reason> {
    if version < Version::V5 || reader.is_empty() {
        return Ok(Reason { reason_code: reason_code::SUCCESS, properties: Properties::default() });
    }
    let reason_code = allowed_reason(kind, reader.byte()?, role)?;
    if reader.is_empty() {
        return Ok(Reason { reason_code, properties: Properties::default() });
    }
    let properties = properties(reader, version, Place::Packet(kind), role)?;
    Ok(Reason { reason_code, properties })
}

fn reason(reader: &mut Reader<'_>, kind: Kind, version: Version, role: Role) -> Decoded<Reason> {
    let reason = shortened_reason(reader, kind, version, role)?;
    let by_other_role = match (kind, role) {
        (Kind::Disconnect, Role::Client) => reason.reason_code == reason_code::DISCONNECT_WITH_WILL,
        // Table 3-13: what only a server has to say about a connection.
        (Kind::Disconnect, Role::Server) => {
            matches!(reason.reason_code, 0x87 | 0x89 | 0x8B | 0x8D..=0x8F | 0x9A..=0xA2)
        }
        (Kind::Auth, Role::Client) => reason.reason_code == reason_code::REAUTHENTICATE,
        (Kind::Auth, Role::Server) => reason.reason_code == reason_code::SUCCESS,
        _ => false,
    };
    if by_other_role {
        return Err(Fault::protocol("a reason code that only the other side sends [MQTT-3.14.2-1] [MQTT-3.15.2-1]"));
    }
    Ok(reason)
}

fn subscribe(reader: &mut Reader<'_>, version: Version, role: Role) -> Decoded<Subscribe> {
    let packet_identifier = packet_identifier(reader)?;
    let properties = properties(reader, version, Place::Packet(Kind::Subscribe), role)?;
    let mut subscriptions = Vec::new();
    while !reader.is_empty() {
        refuse_more(subscriptions.len())?;
        subscriptions.push(subscription(reader, version)?);
    }
    if subscriptions.is_empty() {
        return Err(Fault::protocol("a SUBSCRIBE without a topic filter [MQTT-3.8.3-2]"));
    }
    Ok(Subscribe { packet_identifier, subscriptions, properties })
}

fn refuse_more(filters: usize) -> Decoded<()> {
    if filters >= FILTERS_PER_PACKET_MAXIMUM {
        return Err(Fault::new(reason_code::QUOTA_EXCEEDED, "more topic filters in one packet than are taken"));
    }
    Ok(())
}

fn subscription(reader: &mut Reader<'_>, version: Version) -> Decoded<SubscriptionRequest> {
    let topic_filter = topic_filter(reader)?;
    let options = reader.byte()?;
    let qos = options & 0b11;
    let reserved = if version < Version::V5 { 0b1111_1100 } else { 0b1100_0000 };
    if options & reserved != 0 {
        return Err(Fault::malformed("reserved bits of the subscription options [MQTT-3.8.3-5]"));
    }
    if qos == 3 {
        return Err(Fault::protocol("a subscription with QoS 3 (MQTT 5 section 3.8.3.1)"));
    }
    let no_local = options & 0b100 != 0;
    let retain_handling = options >> 4;
    if retain_handling == 3 {
        return Err(Fault::protocol("Retain Handling 3 (MQTT 5 section 3.8.3.1)"));
    }
    if no_local && topic_filter.starts_with("$share/") {
        return Err(Fault::protocol("No Local on a shared subscription [MQTT-3.8.3-4]"));
    }
    Ok(SubscriptionRequest { topic_filter, qos, no_local, retain_as_published: options & 0b1000 != 0, retain_handling })
}

fn topic_filter(reader: &mut Reader<'_>) -> Decoded<String> {
    let filter = reader.text()?;
    let within = match filter.strip_prefix("$share/") {
        None => filter,
        Some(shared) => match shared.split_once('/') {
            Some((share_name, within)) if !share_name.is_empty() && !share_name.contains(['+', '#']) => within,
            _ => {
                return Err(Fault::new(
                    reason_code::TOPIC_FILTER_INVALID,
                    "a shared subscription without a share name and a filter [MQTT-4.8.2-1] [MQTT-4.8.2-2]",
                ))
            }
        },
    };
    if !crate::topic::is_valid_filter(within.as_bytes()) {
        return Err(Fault::new(
            reason_code::TOPIC_FILTER_INVALID,
            "a topic filter with a misplaced wildcard, or an empty one [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1]",
        ));
    }
    Ok(filter.to_owned())
}

fn answers(reader: &mut Reader<'_>, kind: Kind, version: Version, role: Role) -> Decoded<Answers> {
    let packet_identifier = packet_identifier(reader)?;
    let properties = properties(reader, version, Place::Packet(kind), role)?;
    let mut reason_codes = Vec::new();
    while !reader.is_empty() {
        let code = reader.byte()?;
        let allowed = match (kind, version) {
            (Kind::Suback, Version::V31 | Version::V311) => matches!(code, 0..=2 | 0x80),
            (_, Version::V5) => reason_code::is_allowed(kind, code, role),
            _ => false,
        };
        if !allowed {
            return Err(Fault::protocol("a reason code that this packet does not have [MQTT-3.9.3-2] [MQTT-3.11.3-2]"));
        }
        reason_codes.push(code);
    }
    if reason_codes.is_empty() && (kind == Kind::Suback || version == Version::V5) {
        return Err(Fault::protocol("an answer without a reason code (MQTT 5 sections 3.9.3 and 3.11.3)"));
    }
    Ok(Answers { packet_identifier, reason_codes, properties })
}

fn unsubscribe(reader: &mut Reader<'_>, version: Version, role: Role) -> Decoded<Unsubscribe> {
    let packet_identifier = packet_identifier(reader)?;
    let properties = properties(reader, version, Place::Packet(Kind::Unsubscribe), role)?;
    let mut topic_filters = Vec::new();
    while !reader.is_empty() {
        refuse_more(topic_filters.len())?;
        topic_filters.push(topic_filter(reader)?);
    }
    if topic_filters.is_empty() {
        return Err(Fault::protocol("an UNSUBSCRIBE without a topic filter [MQTT-3.10.3-2]"));
    }
    Ok(Unsubscribe { packet_identifier, topic_filters, properties })
}
