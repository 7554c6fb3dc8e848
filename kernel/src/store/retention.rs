//! What goes away, and what outlives its segment (design section 3.9).
//!
//! Oldest segments go first, whole, in one run after the other. A run goes through these steps, in pieces or beside the
//! loop; whoever calls them has the log go on between any two:
//!
//! 1. `begin_retention` plans the range: sealed segments past retention. Or `begin_thinning`: a carry segment.
//! 2. `survey_job`, beside: which topics have records there.
//! 3. `renew_piece`: control records in force, delivery states and topic names are written anew at the head of the log
//!    (in `renewal`). Then the log is durable, and a checkpoint stands behind the range: `retention_may_go_on`.
//! 4. `visit` and `visit_piece`: what each queue has not seen and still gets, and what it loses.
//! 5. `find_piece`: retained messages, and what groups have handed over.
//! 6. `carry_job`, beside: that is copied *with its ids* to a carry segment, and synced. What `finish` hands out gives
//!    it its name: from then on the range is gone, so all losses are durable before. The next `finish` has it take
//!    the place of the range, and hands out the removal of the files.
//!
//! Invariants:
//! 1. A carry segment gets its name when it is whole and synced; it says which range of the log it replaces, so that
//!    recovery finishes a removal that a crash interrupted and no message is ever there twice.
//! 2. No segment goes before a checkpoint stands behind it: the record that deleted a retained message is not kept,
//!    and what it deleted may be, in an older carry segment. Where the disk is nearly full the checkpoint follows at
//!    once instead.
//! 3. What is found needed holds all that is needed when the range goes, although the log goes on meanwhile, because
//!    what is needed of a range that is durable and sealed only becomes less (docs/adr/0015-in-pieces-or-beside.md).

use super::archive::{Indexed, Segment};
use super::carry::{CarryPlan, CarryWrite, Needs, Survey};
use super::counting::{Question, Wanted};
use super::encoding::wide;
use super::header::{Header, SegmentKind};
use super::job::{Finished, Job, Task};
use super::log::Log;
use super::renewal::Renewal;
use crate::error::{Error, Result};
use crate::flow::state::Changes;
use crate::flow::Subscription;
use crate::ids::{LogPosition, Offset, Party, Timestamp, TopicId};
use crate::limits::{RETAIN_BYTES_MAXIMUM, RETAIN_SEGMENTS_MAXIMUM};
use std::collections::VecDeque;
use std::sync::Arc;

/// A queue whose messages outlive their segment.
#[derive(Clone, Debug)]
pub struct RetentionCursor {
    /// Whose it is.
    pub party: Party,
    /// Everything below is acknowledged.
    pub mark: Offset,
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// What is older is lost where its segment goes.
    pub keep_from: Offset,
    /// It may have at most this many messages; older ones are lost where their segment goes.
    pub messages_maximum: u64,
}

/// What a cursor will not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whose cursor.
    pub party: Party,
    /// The first offset.
    pub first: Offset,
    /// The offset after the last one.
    pub end: Offset,
    /// How many messages.
    pub count: u64,
}

/// The segments that go together, and the range that they cover.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) base: Header,
    pub(super) end_offset: Offset,
    pub(super) end_position: LogPosition,
    pub(super) end_control: u64,
}

/// A run on its way. Nothing but its end takes segments away, and new ones come behind all others: the places of its
/// range stay what they are.
pub(super) struct Run {
    pub(super) range: Range,
    /// Above so many messages its carry segment is not worth to be written.
    messages_maximum: u64,
    pub(super) renewal: Renewal,
    survey: Option<Survey>,
    needs: Needs,
    waiting: VecDeque<RetentionCursor>,
    visit: Option<Visit>,
    search: Search,
}

/// A queue that is being looked at.
struct Visit {
    cursor: RetentionCursor,
    /// The first offset that it has not seen, and the first that it keeps, once they are known.
    from: Option<Offset>,
    kept_from: Option<Offset>,
    /// What is being counted.
    question: Option<Question>,
}

/// What a look at a queue has come to.
enum Visited {
    Done(Option<Loss>),
    /// It goes on with the next piece.
    Later(Box<Visit>),
}

impl Run {
    fn has_visited_all(&self) -> bool {
        self.waiting.is_empty() && self.visit.is_none()
    }
}

/// How far what is needed besides queues has been looked for.
enum Search {
    Retained(Offset),
    Parties(Option<Party>),
    Done,
}

impl Log {
    /// Begins to remove sealed segments past retention, oldest first: those whose last record is older than
    /// `maximum_age_us`, and those without which the log would fit into `maximum_bytes`. False if there are none. A
    /// run that was on its way is given up.
    pub fn begin_retention(&mut self, maximum_age_us: u64, maximum_bytes: u64, now: Timestamp) -> Result<bool> {
        let now = self.begin_run(now)?;
        if let Some(range) = self.past_retention(now.0.saturating_sub(maximum_age_us), maximum_bytes) {
            self.plan_run(range, u64::MAX);
        }
        Ok(self.run.is_some())
    }

    /// Begins to write the next carry segment in turn anew, which happens if at least half of what it holds is needed
    /// by nobody any more. False if there is none.
    pub fn begin_thinning(&mut self, now: Timestamp) -> Result<bool> {
        self.begin_run(now)?;
        let segments = &self.archive.segments;
        let carries = segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let place = self.thinned.checked_rem(carries).unwrap_or_default();
        self.thinned = place.saturating_add(1);
        let Some(carry) = segments.get(place).filter(|segment| segment.header.kind == SegmentKind::Carry) else {
            return Ok(false);
        };
        let range = Range {
            first: place,
            end: place.saturating_add(1),
            base: carry.header,
            end_offset: carry.end_offset(),
            end_position: carry.header.end_position,
            end_control: carry.summary().end_control,
        };
        let messages = carry.summary().messages;
        if messages > 0 && self.checkpointed >= range.end_position && matches!(carry.index, Indexed::Sealed(_)) {
            // It has nothing but messages.
            self.renewed = self.renewed.max(Some((range.end_position, LogPosition(0))));
            self.plan_run(range, messages / 2);
        }
        Ok(self.run.is_some())
    }

    /// The log is whole from here on, and stays so as long as the present run of retention lasts.
    pub fn whole_from(&self) -> Offset {
        let going = self.run.as_ref().map_or(Offset(0), |run| run.range.end_offset);
        self.begin_offset().max(going)
    }

    /// Which topics have records in the range: to be found out beside the loop and handed back to `finish`.
    pub fn survey_job(&self) -> Option<Job> {
        let range = self.run.as_ref()?.range;
        let segments = self.archive.segments.get(range.first..range.end)?;
        let survey = Survey::new(Arc::clone(&self.disk), self.archive.salt, segments.iter());
        Some(Job::new(Task::Survey(survey)))
    }

    /// True once what was written anew is durable and a checkpoint stands behind the range. Where the disk is nearly
    /// full, room comes first: a checkpoint would take some.
    pub fn retention_may_go_on(&self) -> bool {
        self.run.as_ref().is_none_or(|run| self.may_go(&run.range))
    }

    /// False if the newest checkpoint does not reach behind the range of the present run.
    pub fn retention_has_checkpoint(&self) -> bool {
        self.run.as_ref().is_none_or(|run| self.checkpointed >= run.range.end_position)
    }

    /// There are queues; these are to be looked at, groups before the sessions that take from them. After a crash any
    /// queue may read on from before the range, where it must not find a hole.
    pub fn visit(&mut self, cursors: Vec<RetentionCursor>) {
        if let Some(run) = &mut self.run {
            run.needs.queues = true;
            run.waiting.extend(cursors);
        }
    }

    /// Looks at some more of them, for about `effort`. What they lose, and true if none waits any more.
    pub fn visit_piece(&mut self, effort: u64) -> Result<(Vec<Loss>, bool)> {
        let mut losses = Vec::new();
        let Some(mut run) = self.run.take() else { return Ok((losses, true)) };
        let end = self.archive.effort.saturating_add(effort);
        let mut result = if self.may_find(&run) { Ok(()) } else { Err(too_early()) };
        while self.archive.effort < end && result.is_ok() {
            let next =
                || run.waiting.pop_front().map(|cursor| Visit { cursor, from: None, kept_from: None, question: None });
            let Some(visit) = run.visit.take().or_else(next) else { break };
            self.archive.effort = self.archive.effort.wrapping_add(1);
            result = self.look_at(&mut run, visit, end).map(|visited| match visited {
                Visited::Done(loss) => losses.extend(loss),
                Visited::Later(visit) => run.visit = Some(*visit),
            });
        }
        let done = run.has_visited_all();
        self.run = Some(run);
        result.map(|()| (losses, done))
    }

    /// What lies between two offsets is given up: the party at rest passes over it. What lies before may have been
    /// carried, and is still to be had.
    pub fn give_up(&mut self, party: Party, first: Offset, end: Offset, now: Timestamp) -> Result<()> {
        let mut value = Vec::new();
        Changes { acknowledged: vec![(first, end)], ..Changes::default() }.encode(&mut value);
        self.append_control(0, &party.0.to_le_bytes(), &value, now).map(|_| ())
    }

    /// Finds some more of what is needed besides what queues need, for about `effort`; true if that is all. To be
    /// called when all queues have been visited: a group may have handed over meanwhile what it was to give then.
    pub fn find_piece(&mut self, effort: u64) -> Result<bool> {
        let Some(mut run) = self.run.take() else { return Ok(true) };
        let result = if self.may_find(&run) && run.has_visited_all() { Ok(()) } else { Err(too_early()) };
        if result.is_ok() {
            run.search = match run.search {
                Search::Retained(from) => self.find_retained(&mut run, from, effort),
                Search::Parties(after) => self.find_handed_over(&mut run, after, effort),
                Search::Done => Search::Done,
            };
        }
        let done = matches!(run.search, Search::Done);
        self.run = Some(run);
        result.map(|()| done)
    }

    /// What was found needed is to be copied beside the loop, and handed back to `finish`. `None` before all of it has
    /// been looked for.
    pub fn carry_job(&mut self, now: Timestamp) -> Option<Job> {
        let run = self.run.as_mut().filter(|run| matches!(run.search, Search::Done))?;
        let survey = run.survey.take()?;
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let needs = std::mem::replace(&mut run.needs, Needs::new(0));
        let range = run.range;
        let header = Header {
            kind: SegmentKind::Carry,
            number,
            created_at: now,
            end_offset: range.end_offset,
            end_position: range.end_position,
            ..range.base
        };
        let (end_control, messages_maximum, seed) = (range.end_control, run.messages_maximum, self.options.seed);
        let plan = CarryPlan { header, end_control, messages_maximum, seed };
        Some(Job::new(Task::Carry(Box::new(CarryWrite::new(survey.files, needs, &plan)))))
    }

    /// The run is given up; nothing has gone.
    pub fn abandon_retention(&mut self) {
        self.run = None;
    }

    /// The survey is at hand.
    pub(super) fn surveyed(&mut self, survey: Survey) {
        if let Some(run) = &mut self.run {
            run.survey = Some(survey);
        }
    }

    /// The carry segment, if there is one, takes the place of the range, whose files are to go.
    pub(super) fn carried(&mut self, mut write: Box<CarryWrite>) -> Finished {
        let Some(run) = self.run.take() else { return Finished::default() };
        let carried_records = write.messages();
        let mut gone = VecDeque::new();
        for _ in run.range.first..run.range.end {
            gone.extend(self.archive.remove(run.range.first));
        }
        if let Some(carry) = write.segment.take() {
            self.archive.segments.insert(run.range.first.min(self.archive.segments.len()), carry);
        }
        let removed_segments = wide(gone.len());
        let next = Some(Job::removal(Arc::clone(&self.disk), gone, write));
        Finished { removed_segments, carried_records, next }
    }

    fn begin_run(&mut self, now: Timestamp) -> Result<Timestamp> {
        self.run = None;
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        Ok(self.advance(now))
    }

    fn plan_run(&mut self, range: Range, messages_maximum: u64) {
        self.run = Some(Run {
            range,
            messages_maximum,
            renewal: Renewal::default(),
            survey: None,
            needs: Needs::new(self.options.seed),
            waiting: VecDeque::new(),
            visit: None,
            search: Search::Retained(range.base.base_offset),
        });
    }

    fn may_find(&self, run: &Run) -> bool {
        run.survey.is_some() && self.may_go(&run.range)
    }

    fn may_go(&self, range: &Range) -> bool {
        let end = range.end_position;
        let durable = self.renewed.is_some_and(|(until, at)| until >= end && self.durable_position() >= at);
        durable && (self.checkpointed >= end || self.space_is_low)
    }

    /// The oldest segments if they are past retention. A small carry segment before them is written anew with them, so
    /// that carry segments do not become many.
    fn past_retention(&self, oldest: u64, maximum_bytes: u64) -> Option<Range> {
        let segments = &self.archive.segments;
        let mut bytes: u64 = segments.iter().map(Segment::bytes).sum();
        let own = segments.partition_point(|segment| segment.header.kind == SegmentKind::Carry);
        let (mut end, mut going) = (own, 0_u64);
        for segment in segments.get(own..).unwrap_or_default().iter().take(RETAIN_SEGMENTS_MAXIMUM) {
            let old = segment.summary().last_time.0 < oldest;
            let is_past = matches!(segment.index, Indexed::Sealed(_)) && (old || bytes > maximum_bytes);
            going = going.saturating_add(segment.bytes());
            if !is_past || (going > RETAIN_BYTES_MAXIMUM && end > own) {
                break;
            }
            bytes = bytes.saturating_sub(segment.bytes());
            end = end.saturating_add(1);
        }
        let small = |segment: &Segment| {
            segment.bytes() < u64::from(self.options.segment_bytes / 4) && matches!(segment.index, Indexed::Sealed(_))
        };
        let first = match own.checked_sub(1) {
            Some(before) if segments.get(before).is_some_and(small) => before,
            _ => own,
        };
        let last = segments.get(end.checked_sub(1)?).filter(|_| end > own)?;
        let end_position = last.log_position(last.end);
        let base = segments.get(first)?.header;
        Some(Range {
            first,
            end,
            base,
            end_offset: last.end_offset(),
            end_position,
            end_control: last.summary().end_control,
        })
    }

    /// What one queue needs of the range, and what it loses of it. What it loses of an older carry segment is told when
    /// that goes.
    fn look_at(&mut self, run: &mut Run, mut visit: Visit, until: u64) -> Result<Visited> {
        let (range_end, cursor) = (run.range.end_offset, &visit.cursor);
        let from = *visit.from.get_or_insert_with(|| {
            // A run that was given up may have told some of it before.
            let from = cursor.mark.max(run.range.base.base_offset);
            let known = self.parties.get(cursor.party).map(|known| &known.state);
            known.map_or(from, |state| Offset(state.acknowledged.first_gap(from.max(state.mark).0)))
        });
        let kept_from = match visit.kept_from {
            Some(kept_from) => kept_from,
            None => {
                let wanted = if from < range_end { self.wanted_of(run, cursor) } else { Vec::new() };
                if wanted.is_empty() {
                    return Ok(Visited::Done(None));
                }
                let Some(kept_from) = self.kept_from(&mut visit, from, until)? else {
                    return Ok(Visited::Later(Box::new(visit)));
                };
                let kept_from = kept_from.min(range_end);
                for (place, topic) in wanted {
                    let Some(item) = visit.cursor.subscriptions.get(place) else { continue };
                    let (first, end) = (item.from.max(kept_from).max(from), item.until.min(range_end));
                    match topic {
                        Some(topic) => run.needs.add_topic(topic, first, end),
                        None => run.needs.add_filter(&item.filter, first, end),
                    }
                }
                (visit.kept_from, visit.question) = (Some(kept_from), None);
                kept_from
            }
        };
        if kept_from <= from {
            return Ok(Visited::Done(None));
        }
        let Some(lost) = self.ask(&mut visit, (from, kept_from), Wanted::Count, until)? else {
            return Ok(Visited::Later(Box::new(visit)));
        };
        let loss = Loss { party: visit.cursor.party, first: from, end: kept_from, count: lost };
        Ok(Visited::Done((lost > 0).then_some(loss)))
    }

    /// The subscriptions of a queue that can match something of the range, by their places; with the topic of those
    /// that match only one.
    fn wanted_of(&mut self, run: &Run, cursor: &RetentionCursor) -> Vec<(usize, Option<TopicId>)> {
        let is_present = |topic| run.survey.as_ref().is_some_and(|survey| survey.present.contains(topic));
        let mut wanted = Vec::new();
        for (place, item) in cursor.subscriptions.iter().enumerate() {
            self.archive.effort = self.archive.effort.wrapping_add(1);
            let topic = if has_wildcard(&item.filter) { None } else { Some(self.dictionary.find(&item.filter)) };
            match topic {
                Some(Some(topic)) if is_present(topic) => wanted.push((place, Some(topic))),
                Some(_) => {}
                None => wanted.push((place, None)),
            }
        }
        wanted
    }

    /// The first offset that the queue keeps. It is counted only where there are more messages than it may have.
    fn kept_from(&mut self, visit: &mut Visit, from: Offset, until: u64) -> Result<Option<Offset>> {
        let (most, maximum) = (self.durable_offset().0.saturating_sub(from.0), visit.cursor.messages_maximum);
        let keep_from = visit.cursor.keep_from;
        if most <= maximum && visit.question.is_none() {
            return Ok(Some(keep_from.max(from)));
        }
        let newest = self.ask(visit, (from, Offset(u64::MAX)), Wanted::Newest(maximum), until)?;
        Ok(newest.map(|newest| Offset(newest).max(keep_from)))
    }

    fn ask(&mut self, visit: &mut Visit, range: (Offset, Offset), wanted: Wanted, until: u64) -> Result<Option<u64>> {
        let cursor = &visit.cursor;
        let question = visit.question.get_or_insert_with(|| {
            Question::new(cursor.subscriptions.as_slice().into(), cursor.party, range, Timestamp(0), wanted)
        });
        let left = until.saturating_sub(self.archive.effort);
        self.answer(question, left)
    }

    /// Retained messages in force. Those that are replaced before the walk comes to them are in doubt as long as a
    /// crash would bring them back, and are asked for when it has ended.
    fn find_retained(&mut self, run: &mut Run, from: Offset, effort: u64) -> Search {
        let mut looked = 0_u64;
        for offset in self.retained.between(from, run.range.end_offset) {
            if looked >= effort {
                self.archive.effort = self.archive.effort.wrapping_add(looked);
                return Search::Retained(offset);
            }
            looked = looked.saturating_add(1);
            run.needs.offsets.push(offset);
        }
        self.archive.effort = self.archive.effort.wrapping_add(looked);
        let (durable, range) = (self.durable_position(), run.range);
        let in_doubt = self.retained.in_doubt(durable);
        run.needs
            .offsets
            .extend(in_doubt.filter(|offset| range.base.base_offset <= *offset && *offset < range.end_offset));
        Search::Parties(None)
    }

    /// What groups have handed over and its receiver does not have yet.
    fn find_handed_over(&mut self, run: &mut Run, after: Option<Party>, effort: u64) -> Search {
        let mut looked = 0_u64;
        let mut last = after;
        for (party, known) in self.parties.after(after) {
            if looked >= effort {
                self.archive.effort = self.archive.effort.wrapping_add(looked);
                return Search::Parties(last);
            }
            last = Some(party);
            looked = looked.saturating_add(1).saturating_add(wide(known.state.flights.len()));
            let open = known.state.handed_over().map(|(offset, _)| offset);
            run.needs
                .offsets
                .extend(open.filter(|offset| run.range.base.base_offset <= *offset && *offset < run.range.end_offset));
        }
        self.archive.effort = self.archive.effort.wrapping_add(looked);
        Search::Done
    }
}

fn has_wildcard(filter: &[u8]) -> bool {
    filter.iter().any(|byte| matches!(byte, b'+' | b'#'))
}

fn too_early() -> Error {
    Error::Invalid("what outlives the range is not durable yet".to_owned())
}
