//! Writing at the head of the log what it would lose with a range: topic names, control records in force, delivery
//! states.
//!
//! Each is walked in its order, in pieces, while the log goes on. Whatever comes into being behind the walk has its
//! record behind the range already, so the walk needs to see only what was there when it began.

use super::encoding::wide;
use super::index::Class;
use super::log::Log;
use super::retention::{Range, Run};
use crate::error::{Error, Result};
use crate::ids::{Party, Timestamp, TopicId};

/// Looking whether something is to be written anew costs 1, writing it about as much as looking at so many records.
const WRITE_EFFORT: u64 = 16;

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

impl Log {
    /// Writes some more of it anew, for about `effort`; true if that was all.
    pub fn renew_piece(&mut self, effort: u64, now: Timestamp) -> Result<bool> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        let Some(mut run) = self.run.take() else { return Ok(true) };
        let end = self.archive.effort.saturating_add(effort);
        let result = self.renew(&mut run, end, now);
        self.run = Some(run);
        result
    }

    fn renew(&mut self, run: &mut Run, end: u64, now: Timestamp) -> Result<bool> {
        let range = run.range;
        if self.renewed.is_some_and(|(until, _)| until >= range.end_position) {
            return Ok(true);
        }
        let renewal = &mut run.renewal;
        let all = self.renew_topics(renewal, &range, end, now)?
            && self.renew_controls(renewal, &range, end, now)?
            && self.renew_parties(renewal, &range, end, now)?;
        if all {
            self.renewed = Some((range.end_position, self.end_position()));
        }
        Ok(all)
    }

    fn renew_topics(&mut self, renewal: &mut Renewal, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        while self.archive.effort < end {
            let id = TopicId(renewal.topics.saturating_add(1));
            let Some(topic) = self.dictionary.get(id) else { return Ok(true) };
            let old = topic.declared_at < range.end_position;
            let named = topic.name.clone().filter(|_| old).map(|name| (name, topic.next_entry));
            if let Some((name, next_entry)) = named {
                self.put_topic(id, &name, next_entry, now)?;
                self.archive.effort = self.archive.effort.wrapping_add(WRITE_EFFORT);
            }
            self.archive.effort = self.archive.effort.wrapping_add(1);
            renewal.topics = id.0;
        }
        Ok(false)
    }

    fn renew_controls(&mut self, renewal: &mut Renewal, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        while self.archive.effort < end {
            let place = range.first.saturating_add(renewal.segments);
            if place >= range.end {
                return Ok(true);
            }
            let Some(positions) = &mut renewal.positions else {
                let mut positions = Vec::new();
                self.archive.positions(place, TopicId(0), Class::Plain, 0, u32::MAX, &mut positions)?;
                positions.reverse();
                renewal.positions = Some(positions);
                continue;
            };
            match positions.pop() {
                Some(position) => self.renew_control(place, position, now)?,
                None => {
                    renewal.positions = None;
                    renewal.segments = renewal.segments.saturating_add(1);
                }
            }
        }
        Ok(false)
    }

    fn renew_control(&mut self, place: usize, position: u32, now: Timestamp) -> Result<()> {
        let Some(record) = self.archive.record(place, position)? else { return Ok(()) };
        let mut effort = wide(record.size_bytes()) / BYTES_PER_EFFORT;
        let (table, number) = (record.publisher.0, record.entry);
        let key = record.key.unwrap_or_default();
        if table > 0 && self.in_force.is(table, key, number) {
            let (key, value) = (key.to_vec(), record.payload.to_vec());
            self.append_control(table, &key, &value, now)?;
            effort = effort.saturating_add(WRITE_EFFORT);
        }
        self.archive.effort = self.archive.effort.wrapping_add(effort);
        Ok(())
    }

    fn renew_parties(&mut self, renewal: &mut Renewal, range: &Range, end: u64, now: Timestamp) -> Result<bool> {
        while self.archive.effort < end {
            let left = end.saturating_sub(self.archive.effort);
            let mut looked = 0_u64;
            let mut resting = None;
            for (party, known) in self.parties.after(renewal.party) {
                looked = looked.saturating_add(1);
                renewal.party = Some(party);
                // Without the control records of the range the log would not have this state any more.
                if known.full_number < range.end_control {
                    resting = Some(party);
                    break;
                }
                if looked >= left {
                    self.archive.effort = self.archive.effort.wrapping_add(looked);
                    return Ok(false);
                }
            }
            self.archive.effort = self.archive.effort.wrapping_add(looked);
            let Some(party) = resting else { return Ok(true) };
            let Some(state) = self.parties.encoded(party) else { continue };
            self.append_control(0, &party.0.to_le_bytes(), &state, now)?;
            self.archive.effort = self.archive.effort.wrapping_add(WRITE_EFFORT);
        }
        Ok(false)
    }
}
