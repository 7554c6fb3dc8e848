//! A subscriber that speaks MQTT.

use super::packet::{self, Packet, Reply};
use super::{refused, scan};
use crate::speech::{Fault, News, Subscribes, Taken};
use crate::stamp::Stamp;

/// Its exchange with the broker.
pub struct Subscriber;

impl Subscriber {
    /// Asks the broker to accept it, with a session that lasts if `persistent`.
    pub fn new(client_identifier: &str, persistent: bool, outbox: &mut Vec<u8>) -> Self {
        packet::encode_connect(client_identifier, !persistent, outbox);
        Self
    }
}

impl Subscribes for Subscriber {
    fn subscribe(&mut self, topic_filters: &[String], qos: u8, outbox: &mut Vec<u8>) {
        packet::encode_subscribe(topic_filters, qos, outbox);
    }

    fn take(&mut self, bytes: &[u8], outbox: &mut Vec<u8>) -> Taken {
        let Some((packet, used)) = scan(bytes)? else { return Ok(None) };
        let news = match packet {
            Packet::Publish { qos, packet_identifier, payload } => {
                let stamp = Stamp::decode(payload).ok_or(Fault::Foreign)?;
                match qos {
                    0 => {}
                    1 => Reply::Puback.encode(packet_identifier, outbox),
                    _ => Reply::Pubrec.encode(packet_identifier, outbox),
                }
                News::Came(stamp, 1)
            }
            Packet::Reply(Reply::Pubrel, identifier) => {
                Reply::Pubcomp.encode(identifier, outbox);
                News::Nothing
            }
            Packet::Connack(0) => News::Ready,
            Packet::Connack(code) => return Err(refused("CONNECT", code)),
            Packet::Suback(0..=2) => News::Subscribed,
            Packet::Suback(code) => return Err(refused("SUBSCRIBE", code)),
            Packet::Reply(..) => return Err(Fault::Foreign),
        };
        Ok(Some((news, used)))
    }

    /// Each message has been acknowledged when it came.
    fn acknowledge(&mut self, _outbox: &mut Vec<u8>) {}

    fn leave(&mut self, outbox: &mut Vec<u8>) {
        packet::encode_disconnect(outbox);
    }
}
