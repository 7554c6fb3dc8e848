//! A publisher that speaks MQTT.

use super::packet::{self, Frame, Packet, Reply};
use super::{refused, scan};
use crate::shape::Shape;
use crate::speech::{Fault, News, Publishes, Taken};

/// Its exchange with the broker.
pub struct Publisher {
    frame: Frame,
    qos: u8,
    next_identifier: u16,
}

impl Publisher {
    /// Asks the broker to accept it.
    pub fn new(client_identifier: &str, shape: Shape<'_>, number: u32, outbox: &mut Vec<u8>) -> Self {
        packet::encode_connect(client_identifier, true, outbox);
        Self { frame: Frame::new(shape, number), qos: shape.qos, next_identifier: 1 }
    }
}

impl Publishes for Publisher {
    fn size_bytes(&self) -> usize {
        self.frame.size_bytes()
    }

    fn messages(&self) -> u64 {
        1
    }

    fn encode(&mut self, number: u64, sent_ns: u64, outbox: &mut Vec<u8>) {
        self.frame.encode(self.next_identifier, number, sent_ns, outbox);
        // The window is far below 65 535, so an identifier is free again when its turn comes.
        self.next_identifier = self.next_identifier.checked_add(1).unwrap_or(1);
    }

    fn take(&mut self, bytes: &[u8], outbox: &mut Vec<u8>) -> Taken {
        let Some((packet, used)) = scan(bytes)? else { return Ok(None) };
        let news = match packet {
            Packet::Connack(0) => News::Ready,
            Packet::Connack(code) => return Err(refused("CONNECT", code)),
            Packet::Reply(Reply::Puback, _) if self.qos == 1 => News::Acknowledged(1),
            Packet::Reply(Reply::Pubrec, identifier) if self.qos == 2 => {
                Reply::Pubrel.encode(identifier, outbox);
                News::Nothing
            }
            Packet::Reply(Reply::Pubcomp, _) if self.qos == 2 => News::Acknowledged(1),
            _ => return Err(Fault::Foreign),
        };
        Ok(Some((news, used)))
    }
}
