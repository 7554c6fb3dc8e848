//! A producer.

use super::entry::Entry;
use super::{frame, protobuf, put_connect, put_lookup, scan, take_any, take_lookup, topic, ID, REQUEST};
use crate::shape::Shape;
use crate::speech::{Fault, News, Publishes, Taken};

/// Its exchange with the broker.
pub struct Producer {
    name: String,
    topic: String,
    entry: Entry,
    /// The sequence id of the entry whose receipt comes next.
    receipted: u64,
}

impl Producer {
    /// Asks the broker to accept its connection.
    pub fn new(name: &str, shape: Shape<'_>, number: u32, outbox: &mut Vec<u8>) -> Self {
        put_connect(outbox);
        let entry = Entry::new(name, number, shape.batch, shape.payload_bytes);
        Self { name: name.into(), topic: topic(shape.topic), entry, receipted: 0 }
    }

    fn put_producer(&self, outbox: &mut Vec<u8>) {
        let mut fields = Vec::new();
        protobuf::put_bytes(&mut fields, 1, self.topic.as_bytes());
        protobuf::put_number(&mut fields, 2, ID);
        protobuf::put_number(&mut fields, 3, REQUEST);
        protobuf::put_bytes(&mut fields, 4, self.name.as_bytes());
        frame::put(outbox, frame::PRODUCER, &fields, 0);
    }
}

impl Publishes for Producer {
    fn size_bytes(&self) -> usize {
        self.entry.size_bytes()
    }

    fn messages(&self) -> u64 {
        self.entry.messages()
    }

    fn encode(&mut self, number: u64, sent_ns: u64, outbox: &mut Vec<u8>) {
        self.entry.encode(ID, number, sent_ns, outbox);
    }

    fn take(&mut self, bytes: &[u8], outbox: &mut Vec<u8>) -> Taken {
        let Some((frame, used)) = scan(bytes)? else { return Ok(None) };
        let mut news = News::Nothing;
        match frame.kind {
            frame::CONNECTED => put_lookup(&self.topic, outbox),
            frame::LOOKUP_RESPONSE => {
                take_lookup(&frame)?;
                self.put_producer(outbox);
            }
            frame::PRODUCER_SUCCESS => news = News::Ready,
            frame::SEND_RECEIPT => {
                // Receipts come in the order of the entries.
                if protobuf::number(frame.fields, 2) != self.receipted {
                    return Err(Fault::Foreign);
                }
                self.receipted += self.messages();
                news = News::Acknowledged(self.messages());
            }
            frame::SEND_ERROR => return Err(Fault::Refused("SEND", frame::sentence(&frame))),
            _ => take_any(&frame, outbox)?,
        }
        Ok(Some((news, used)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_of(kind: u8, numbers: &[(u32, u64)]) -> Vec<u8> {
        let (mut fields, mut out) = (vec![], vec![]);
        numbers.iter().for_each(|(field, number)| protobuf::put_number(&mut fields, *field, *number));
        frame::put(&mut out, kind, &fields, 0);
        out
    }

    fn producer(outbox: &mut Vec<u8>) -> Producer {
        let shape = Shape { topic: "bench/0", topics: 1, qos: 1, retain: false, payload_bytes: 100, batch: 10 };
        Producer::new("p", shape, 0, outbox)
    }

    #[test]
    fn it_looks_its_topic_up_before_it_produces() {
        let mut outbox = vec![];
        let mut producer = producer(&mut outbox);
        let answers = [
            (frame::CONNECTED, vec![], frame::LOOKUP, News::Nothing),
            (frame::LOOKUP_RESPONSE, vec![(3, 1)], frame::PRODUCER, News::Nothing),
        ];
        for (answer, numbers, expected, news) in answers {
            outbox.clear();
            let (found, _) = producer.take(&frame_of(answer, &numbers), &mut outbox).unwrap().unwrap();
            let (asked, _) = frame::scan(&outbox).unwrap().unwrap();
            assert_eq!((found, asked.kind), (news, expected));
            assert_eq!(protobuf::bytes(asked.fields, 1), b"persistent://public/default/bench%2F0");
        }
        let ready = frame_of(frame::PRODUCER_SUCCESS, &[]);
        assert_eq!(producer.take(&ready, &mut outbox), Ok(Some((News::Ready, ready.len()))));
    }

    #[test]
    fn receipts_come_in_order() {
        let mut producer = producer(&mut vec![]);
        let (first, second) = (frame_of(frame::SEND_RECEIPT, &[(2, 0)]), frame_of(frame::SEND_RECEIPT, &[(2, 10)]));
        assert_eq!(producer.take(&first, &mut vec![]), Ok(Some((News::Acknowledged(10), first.len()))));
        assert_eq!(producer.take(&first, &mut vec![]), Err(Fault::Foreign));
        assert_eq!(producer.take(&second, &mut vec![]), Ok(Some((News::Acknowledged(10), second.len()))));
    }
}
