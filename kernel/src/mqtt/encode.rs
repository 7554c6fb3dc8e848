//! Control packets to bytes, in either role.
//!
//! Older versions leave out what they do not have; their return codes are translated from reason codes.

use super::decode::decode;
use super::fault::Fault;
use super::frame::Frame;
use super::kind::Kind;
use super::packet::{Acknowledgement, Answers, Connack, Connect, Packet, Publish, Reason, Subscribe, Unsubscribe};
use super::property::{put_binary, put_variable, Properties};
use super::publish::{Writing, WritingProperties};
use super::{reason_code, Role, Version};
use crate::error::{Error, Result};
use crate::flow::{self, Step};

/// One packet as bytes. What its receiver would refuse is not written.
pub fn encode(packet: &Packet, version: Version) -> Result<Vec<u8>> {
    let bytes = match packet {
        Packet::Publish(publish) => {
            let mut bytes = Vec::new();
            writing(publish, version)?.write(&mut bytes)?;
            bytes
        }
        _ => control(packet, version)?,
    };
    let accepted = |role| match Frame::read(&bytes) {
        Ok(Some(frame)) => {
            decode(&frame, bytes.get(frame.header_bytes..).unwrap_or_default(), version, role).map(|_| ())
        }
        _ => Err(Fault::malformed("a packet that is too long [MQTT-1.5.5-1]")),
    };
    // Most packets flow in one direction only; what either role would take is right in one of them.
    match accepted(Role::Client).or_else(|_| accepted(Role::Server)) {
        Ok(()) => Ok(bytes),
        Err(fault) => Err(Error::Invalid(fault.reason.to_owned())),
    }
}

fn control(packet: &Packet, version: Version) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    match packet {
        Packet::Connect(packet) => connect(packet, &mut body)?,
        Packet::Connack(packet) => connack(packet, version, &mut body)?,
        Packet::Publish(_) | Packet::Pingreq | Packet::Pingresp => {}
        Packet::Acknowledgement(packet) => acknowledgement(packet, version, &mut body)?,
        Packet::Subscribe(packet) => subscribe(packet, version, &mut body)?,
        Packet::Suback(packet) => answers(packet, Kind::Suback, version, &mut body)?,
        Packet::Unsubscribe(packet) => unsubscribe(packet, version, &mut body)?,
        Packet::Unsuback(packet) => answers(packet, Kind::Unsuback, version, &mut body)?,
        Packet::Disconnect(packet) => reason(packet, version, &mut body)?,
        Packet::Auth(_) if version < Version::V5 => {
            return Err(Error::Invalid("AUTH exists in MQTT 5 only".to_owned()));
        }
        Packet::Auth(packet) => reason(packet, version, &mut body)?,
    }
    let kind = packet.kind();
    let mut bytes = vec![kind.bits() << 4 | kind.reserved_flags()];
    put_variable(&mut bytes, body.len())?;
    bytes.extend(body);
    Ok(bytes)
}

/// Appends an acknowledgement of the hot path: no properties, and no reason code where it is 0 (section 3.4.2.1).
#[inline]
pub fn put_acknowledgement(acknowledgement: &flow::Acknowledgement, version: Version, bytes: &mut Vec<u8>) {
    let first = match acknowledgement.step {
        Step::Acknowledged => 0x40,
        Step::Received => 0x50,
        Step::Released => 0x62,
        Step::Completed => 0x70,
    };
    let [high, low] = acknowledgement.packet_identifier.to_be_bytes();
    match acknowledgement.refusal {
        Some(refusal) if version == Version::V5 => {
            bytes.extend_from_slice(&[first, 3, high, low, reason_code::of(refusal)]);
        }
        _ => bytes.extend_from_slice(&[first, 2, high, low]),
    }
}

fn writing(publish: &Publish, version: Version) -> Result<Writing<'_>> {
    refuse_qos(publish.qos)?;
    let encoded = publish.properties.as_bytes();
    Ok(Writing {
        dup: publish.dup,
        qos: publish.qos,
        retain: publish.retain,
        packet_identifier: publish.packet_identifier,
        topic: publish.topic_name.as_bytes(),
        payload: &publish.payload,
        properties: (version == Version::V5).then_some(WritingProperties { encoded, ..WritingProperties::default() }),
    })
}

fn refuse_qos(qos: u8) -> Result<()> {
    if qos > 2 {
        return Err(Error::Invalid(format!("QoS {qos}")));
    }
    Ok(())
}

fn put_properties(properties: &Properties, version: Version, body: &mut Vec<u8>) -> Result<()> {
    if version == Version::V5 {
        put_variable(body, properties.as_bytes().len())?;
        body.extend_from_slice(properties.as_bytes());
    }
    Ok(())
}

fn connect(packet: &Connect, body: &mut Vec<u8>) -> Result<()> {
    let version = packet.version;
    put_binary(body, version.protocol_name().as_bytes())?;
    body.push(version.level());
    refuse_qos(packet.will.as_ref().map_or(0, |will| will.qos))?;
    let will_flags = packet.will.as_ref().map_or(0, |will| 0x04 | will.qos << 3 | u8::from(will.retain) << 5);
    let user_name = u8::from(packet.user_name.is_some()) << 7;
    let password = u8::from(packet.password.is_some()) << 6;
    body.push(user_name | password | will_flags | u8::from(packet.clean_start) << 1);
    body.extend(packet.keep_alive_s.to_be_bytes());
    put_properties(&packet.properties, version, body)?;
    put_binary(body, packet.client_identifier.as_bytes())?;
    if let Some(will) = &packet.will {
        put_properties(&will.properties, version, body)?;
        put_binary(body, will.topic_name.as_bytes())?;
        put_binary(body, &will.payload)?;
    }
    if let Some(user_name) = &packet.user_name {
        put_binary(body, user_name.as_bytes())?;
    }
    if let Some(password) = &packet.password {
        put_binary(body, password)?;
    }
    Ok(())
}

fn connack(packet: &Connack, version: Version, body: &mut Vec<u8>) -> Result<()> {
    body.push(u8::from(packet.session_present && version > Version::V31));
    match version {
        Version::V5 => body.push(packet.reason_code),
        Version::V31 | Version::V311 => body.push(reason_code::connack_return_code(packet.reason_code)),
    }
    put_properties(&packet.properties, version, body)
}

fn acknowledgement(packet: &Acknowledgement, version: Version, body: &mut Vec<u8>) -> Result<()> {
    body.extend(packet.packet_identifier.to_be_bytes());
    reason_fields(packet.reason_code, &packet.properties, version, body)
}

fn reason(packet: &Reason, version: Version, body: &mut Vec<u8>) -> Result<()> {
    reason_fields(packet.reason_code, &packet.properties, version, body)
}

/// A reason code and properties, as short as the specification allows.
fn reason_fields(code: u8, properties: &Properties, version: Version, body: &mut Vec<u8>) -> Result<()> {
    let bare = properties.as_bytes().is_empty();
    if version < Version::V5 || (bare && code == reason_code::SUCCESS) {
        return Ok(());
    }
    body.push(code);
    if bare {
        return Ok(());
    }
    put_properties(properties, version, body)
}

fn subscribe(packet: &Subscribe, version: Version, body: &mut Vec<u8>) -> Result<()> {
    body.extend(packet.packet_identifier.to_be_bytes());
    put_properties(&packet.properties, version, body)?;
    for subscription in &packet.subscriptions {
        put_binary(body, subscription.topic_filter.as_bytes())?;
        refuse_qos(subscription.qos)?;
        if subscription.retain_handling > 2 {
            return Err(Error::Invalid(format!("Retain Handling {}", subscription.retain_handling)));
        }
        let no_local = u8::from(subscription.no_local) << 2;
        let retain_as_published = u8::from(subscription.retain_as_published) << 3;
        let options = match version {
            Version::V5 => subscription.qos | no_local | retain_as_published | subscription.retain_handling << 4,
            Version::V31 | Version::V311 => subscription.qos,
        };
        body.push(options);
    }
    Ok(())
}

fn answers(packet: &Answers, kind: Kind, version: Version, body: &mut Vec<u8>) -> Result<()> {
    body.extend(packet.packet_identifier.to_be_bytes());
    put_properties(&packet.properties, version, body)?;
    match (kind, version) {
        (_, Version::V5) => body.extend_from_slice(&packet.reason_codes),
        // The one refusal that 3.1.1 knows [MQTT-3.9.3-2]; its UNSUBACK has no payload.
        (Kind::Suback, _) => body.extend(packet.reason_codes.iter().map(|code| if *code > 2 { 0x80 } else { *code })),
        _ => {}
    }
    Ok(())
}

fn unsubscribe(packet: &Unsubscribe, version: Version, body: &mut Vec<u8>) -> Result<()> {
    body.extend(packet.packet_identifier.to_be_bytes());
    put_properties(&packet.properties, version, body)?;
    for topic_filter in &packet.topic_filters {
        put_binary(body, topic_filter.as_bytes())?;
    }
    Ok(())
}
