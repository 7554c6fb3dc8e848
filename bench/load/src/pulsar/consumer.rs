//! A consumer with a subscription of its own.

use super::{entry, frame, protobuf, put_connect, put_lookup, scan, take_any, take_lookup, topic, ID, REQUEST};
use crate::speech::{Fault, News, Subscribes, Taken};

/// Messages that a consumer keeps at most, as the official clients do by default.
const QUEUE_MESSAGES: u64 = 1_000;

/// So many have been used up when as many more are asked for.
const REFILL_MESSAGES: u64 = QUEUE_MESSAGES / 2;

/// Acknowledgements that wait for company, at most.
const GROUP_ENTRIES: usize = 1_000;

/// Its exchange with the broker.
pub struct Consumer {
    subscription: String,
    topic: String,
    /// Messages that came since permits were last given.
    used: u64,
    /// Ids of entries that are not yet acknowledged, each a field of an ACK.
    done: Vec<u8>,
    done_entries: usize,
}

impl Consumer {
    /// Asks the broker to accept its connection.
    pub fn new(subscription: &str, outbox: &mut Vec<u8>) -> Self {
        put_connect(outbox);
        Self { subscription: subscription.into(), topic: String::new(), used: 0, done: vec![], done_entries: 0 }
    }

    fn put_subscribe(&self, outbox: &mut Vec<u8>) {
        let mut fields = Vec::new();
        protobuf::put_bytes(&mut fields, 1, self.topic.as_bytes());
        protobuf::put_bytes(&mut fields, 2, self.subscription.as_bytes());
        protobuf::put_number(&mut fields, 3, 0); // Exclusive.
        protobuf::put_number(&mut fields, 4, ID);
        protobuf::put_number(&mut fields, 5, REQUEST);
        protobuf::put_bytes(&mut fields, 6, self.subscription.as_bytes());
        frame::put(outbox, frame::SUBSCRIBE, &fields, 0);
    }

    fn came(&mut self, message: &frame::Frame<'_>, outbox: &mut Vec<u8>) -> Result<News, Fault> {
        let (stamp, count) = entry::read(message.tail).ok_or(Fault::Foreign)?;
        // The id comes back as it was read.
        protobuf::put_bytes(&mut self.done, 3, protobuf::bytes(message.fields, 2));
        self.done_entries += 1;
        if self.done_entries == GROUP_ENTRIES {
            self.put_acknowledgements(outbox);
        }
        self.used += count;
        while self.used >= REFILL_MESSAGES {
            self.used -= REFILL_MESSAGES;
            put_flow(REFILL_MESSAGES, outbox);
        }
        Ok(News::Came(stamp, count))
    }

    fn put_acknowledgements(&mut self, outbox: &mut Vec<u8>) {
        let mut fields = Vec::with_capacity(self.done.len() + 4);
        protobuf::put_number(&mut fields, 1, ID);
        protobuf::put_number(&mut fields, 2, 0); // Individual.
        fields.extend_from_slice(&self.done);
        frame::put(outbox, frame::ACK, &fields, 0);
        self.done.clear();
        self.done_entries = 0;
    }
}

fn put_flow(messages: u64, outbox: &mut Vec<u8>) {
    let mut fields = Vec::new();
    protobuf::put_number(&mut fields, 1, ID);
    protobuf::put_number(&mut fields, 2, messages);
    frame::put(outbox, frame::FLOW, &fields, 0);
}

impl Subscribes for Consumer {
    /// Its topic is the first of them: there are no wildcards.
    fn subscribe(&mut self, topic_filters: &[String], _qos: u8, outbox: &mut Vec<u8>) {
        self.topic = topic_filters.first().map(|name| topic(name)).unwrap_or_default();
        put_lookup(&self.topic, outbox);
    }

    fn take(&mut self, bytes: &[u8], outbox: &mut Vec<u8>) -> Taken {
        let Some((frame, used)) = scan(bytes)? else { return Ok(None) };
        let mut news = News::Nothing;
        match frame.kind {
            frame::MESSAGE => news = self.came(&frame, outbox)?,
            frame::CONNECTED => news = News::Ready,
            frame::LOOKUP_RESPONSE => {
                take_lookup(&frame)?;
                self.put_subscribe(outbox);
            }
            frame::SUCCESS => {
                put_flow(QUEUE_MESSAGES, outbox);
                news = News::Subscribed;
            }
            _ => take_any(&frame, outbox)?,
        }
        Ok(Some((news, used)))
    }

    fn acknowledge(&mut self, outbox: &mut Vec<u8>) {
        if self.done_entries > 0 {
            self.put_acknowledgements(outbox);
        }
    }

    /// Whoever closes the connection has left.
    fn leave(&mut self, _outbox: &mut Vec<u8>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pulsar::entry::Entry;

    /// The kinds of the frames that were appended, and the last one's fields.
    fn sent(outbox: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut kinds, mut last, mut rest) = (vec![], vec![], outbox);
        while let Some((frame, used)) = frame::scan(rest).unwrap() {
            kinds.push(frame.kind);
            last = frame.fields.to_vec();
            rest = &rest[used..];
        }
        (kinds, last)
    }

    fn message(entry: &mut Entry, number: u64) -> Vec<u8> {
        let mut send = vec![];
        entry.encode(0, number, 0, &mut send);
        let tail = frame::scan(&send).unwrap().unwrap().0.tail;
        let (mut id, mut fields, mut out) = (vec![], vec![], vec![]);
        protobuf::put_number(&mut id, 1, 3);
        protobuf::put_number(&mut id, 2, number);
        protobuf::put_number(&mut fields, 1, ID);
        protobuf::put_bytes(&mut fields, 2, &id);
        frame::put(&mut out, frame::MESSAGE, &fields, tail.len());
        out.extend_from_slice(tail);
        out
    }

    #[test]
    fn half_of_the_queue_is_asked_for_once_it_is_used_up() {
        let mut consumer = Consumer::new("a", &mut vec![]);
        let mut entry = Entry::new("p", 0, 0, 100);
        let mut outbox = vec![];
        for number in 0..REFILL_MESSAGES {
            assert!(outbox.is_empty());
            consumer.take(&message(&mut entry, number), &mut outbox).unwrap();
        }
        let (kinds, fields) = sent(&outbox);
        assert_eq!((kinds, protobuf::number(&fields, 2)), (vec![frame::FLOW], REFILL_MESSAGES));
        let mut batches = Entry::new("p", 0, 1_000, 100);
        outbox.clear();
        consumer.take(&message(&mut batches, 500), &mut outbox).unwrap();
        assert_eq!(sent(&outbox).0, [frame::FLOW, frame::FLOW]);
    }

    #[test]
    fn acknowledgements_leave_together() {
        let mut consumer = Consumer::new("a", &mut vec![]);
        let mut entry = Entry::new("p", 0, 0, 100);
        let mut outbox = vec![];
        for number in 0..GROUP_ENTRIES as u64 + 2 {
            consumer.take(&message(&mut entry, number), &mut outbox).unwrap();
        }
        let (mut kinds, _) = sent(&outbox);
        kinds.retain(|kind| *kind == frame::ACK);
        assert_eq!(kinds.len(), 1);
        outbox.clear();
        consumer.acknowledge(&mut outbox);
        let (kinds, fields) = sent(&outbox);
        let ids = protobuf::Fields(&fields).filter(|(field, _)| *field == 3).count();
        assert_eq!((kinds, ids), (vec![frame::ACK], 2));
        outbox.clear();
        consumer.acknowledge(&mut outbox);
        assert!(outbox.is_empty());
    }
}
