//! Writing at the head of the log what it would lose with a range: topic names, control records in force, delivery
//! states.
//!
//! Each is walked in its order, in pieces, while the log goes on. Whatever comes into being behind the walk has its
//! record behind the range already, so the walk needs to see only what was there when it began.

use super::encoding::wide;
use super::index::Class;
use super::range::Range;
use super::records::Records;
use crate::error::Result;
use crate::ids::{Party, Timestamp, TopicId};

/// Looking whether something is to be written anew costs 1, writing it about as much as looking at so many records:
/// of a million topics, which nothing has touched for a while, 7 us each; of 600 000 control records 0.9 us.
const WRITE_EFFORT: u64 = 24;

/// Bytes of a record that cost as much to be read and checked as looking at one more record.
const BYTES_PER_EFFORT: u64 = 256;

/// How far it is.
#[derive(Default)]
pub(super) struct Renewal {
    /// Topics so far.
    topics: u32,
    /// Segments of the range so far, ...
    segments: usize,
    /// ... and of the next one where its control records are, those that come first last.
    positions: Option<Vec<u32>>,
    party: Option<Party>,
}

impl Renewal {
    /// Writes some more of it anew, until the log's effort has reached `end`; true if that was all.
    pub(super) fn piece(&mut self, records: &mut Records, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        Ok(self.renew_topics(records, range, end, now)?
            && self.renew_controls(records, range, end, now)?
            && self.renew_parties(records, range, end, now)?)
    }

    fn renew_topics(&mut self, records: &mut Records, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        while records.archive.effort < end {
            let id = TopicId(self.topics.saturating_add(1));
            let Some(topic) = records.derived.dictionary.get(id) else { return Ok(true) };
            let (next_entry, is_old) = (topic.next_entry, topic.declared_at < range.end_position);
            if let Some(name) = topic.name.clone().filter(|_| is_old) {
                records.put_topic(id, &name, next_entry, now)?;
                let effort = WRITE_EFFORT.saturating_add(wide(name.len()) / BYTES_PER_EFFORT);
                records.archive.effort = records.archive.effort.wrapping_add(effort);
            }
            records.archive.effort = records.archive.effort.wrapping_add(1);
            self.topics = id.0;
        }
        Ok(false)
    }

    fn renew_controls(&mut self, records: &mut Records, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        while records.archive.effort < end {
            let place = range.first.saturating_add(self.segments);
            if place >= range.end {
                return Ok(true);
            }
            let Some(positions) = &mut self.positions else {
                let mut positions = Vec::new();
                records.archive.positions(place, TopicId(0), Class::Plain, 0, u32::MAX, &mut positions)?;
                positions.reverse();
                self.positions = Some(positions);
                continue;
            };
            match positions.pop() {
                Some(position) => Renewal::renew_control(records, place, position, now)?,
                None => {
                    self.positions = None;
                    self.segments = self.segments.saturating_add(1);
                }
            }
        }
        Ok(false)
    }

    fn renew_control(records: &mut Records, place: usize, position: u32, now: Timestamp) -> Result<()> {
        let Some(record) = records.archive.record(place, position)? else { return Ok(()) };
        let mut effort = wide(record.size_bytes()) / BYTES_PER_EFFORT;
        let (table, number) = (record.publisher.0, record.entry);
        let key = record.key.unwrap_or_default();
        if table > 0 && records.derived.in_force.is(table, key, number) {
            let (key, value) = (key.to_vec(), record.payload.to_vec());
            let copy = records.appending.head.control;
            records.append_control(table, &key, &value, now)?;
            records.following.note_silent(number, copy);
            effort = effort.saturating_add(WRITE_EFFORT);
        }
        records.archive.effort = records.archive.effort.wrapping_add(effort);
        Ok(())
    }

    fn renew_parties(&mut self, records: &mut Records, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        while records.archive.effort < end {
            let left = end.saturating_sub(records.archive.effort);
            let mut looked = 0_u64;
            let mut resting = None;
            for (party, known) in records.derived.parties.after(self.party) {
                looked = looked.saturating_add(1);
                self.party = Some(party);
                // Without the control records of the range the log would not have this state any more.
                if known.full_number < range.end_control {
                    resting = Some(party);
                    break;
                }
                if looked >= left {
                    records.archive.effort = records.archive.effort.wrapping_add(looked);
                    return Ok(false);
                }
            }
            records.archive.effort = records.archive.effort.wrapping_add(looked);
            let Some(party) = resting else { return Ok(true) };
            let Some(state) = records.derived.parties.encoded(party) else { continue };
            records.append_control(0, &party.0.to_le_bytes(), &state, now)?;
            let effort = WRITE_EFFORT.saturating_add(wide(state.len()) / BYTES_PER_EFFORT);
            records.archive.effort = records.archive.effort.wrapping_add(effort);
        }
        Ok(false)
    }
}
