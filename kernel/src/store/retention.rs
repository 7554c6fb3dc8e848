//! What goes away, and what outlives its segment (design section 3.9).
//!
//! Oldest segments go first, whole, in one run after the other. A run goes through these steps, in pieces or beside the
//! loop; whoever calls them has the log go on between any two:
//!
//! 1. `begin_retention` plans the range: sealed segments past retention. Or `begin_thinning`: carry segments.
//! 2. `survey_job`, beside: which topics have records there.
//! 3. `renew_piece`: control records in force, delivery states and topic names are written anew at the head of the log
//!    (in `renewal`). Then the log is durable, and a checkpoint stands behind the range: `retention_may_go_on`.
//! 4. `visit` and `visit_piece`: what each queue has not seen and still gets, and what it loses.
//! 5. `find_piece`: retained messages, and what groups have handed over.
//! 6. `carry_job`, beside: that is copied *with its ids* to a carry segment, and synced. What `finish` hands out gives
//!    it its name: from then on the range is gone, so all losses are durable before, and all that made a message no
//!    longer needed. The next `finish` has it take the place of the range, and hands out the removal of the files.
//!
//! Invariants:
//! 1. A carry segment gets its name when it is whole and synced; it says which range of the log it replaces, so that
//!    recovery finishes a removal that a crash interrupted and no message is ever there twice.
//! 2. No segment goes before a checkpoint stands behind it: the record that deleted a retained message is not kept,
//!    and what it deleted may be, in an older carry segment. Where the disk is nearly full and has no room for it,
//!    the checkpoint follows at once instead.
//! 3. What is found needed holds all that is needed when the range goes, although the log goes on meanwhile, because
//!    what is needed of a range that is durable and sealed only becomes less (docs/adr/0015-in-pieces-or-beside.md).

use super::append::Appending;
use super::archive::Archive;
use super::carry::{CarryPlan, CarryWrite, Needs, Survey};
use super::counting::{Looking, Question, Wanted};
use super::derived::Derived;
use super::encoding::wide;
use super::filters::FilterMemory;
use super::header::{Header, SegmentKind};
use super::job::{Finished, Job, Task};
use super::range::Range;
use super::records::Records;
use super::renewal::Renewal;
use crate::error::{Error, Result};
use crate::flow::Subscription;
use crate::ids::{LogPosition, Offset, Party, Timestamp, TopicId};
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

/// A run on its way. Nothing but its end takes segments away, and new ones come behind all others: the places of its
/// range stay what they are.
struct Run {
    range: Range,
    /// Above so many messages its carry segment is not worth to be written.
    messages_maximum: u64,
    renewal: Renewal,
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

/// How far what is needed besides queues has been looked for.
enum Search {
    Retained(Offset),
    Parties(Option<Party>),
    Done,
}

/// What goes away at present.
#[derive(Default)]
pub(super) struct Retention {
    run: Option<Run>,
    /// What retention must not lose is written anew for everything below the first position; it is durable once the
    /// log is durable up to the second one.
    renewed: Option<(LogPosition, LogPosition)>,
    /// What pieces have written anew that the log still has: where each ended, and its bytes. Nearly all of that is in
    /// force, and would only be written anew once more.
    in_force: Vec<(LogPosition, u64)>,
    /// From which carry segment on is looked next for what nobody needs any more.
    thinned: usize,
}

impl Retention {
    /// Begins to remove sealed segments past retention, oldest first: those whose last record is older than
    /// `maximum_age_us`, and those without which the log would fit into `maximum_bytes`, what is in force apart: where
    /// that is most of a segment, removing it would gain nothing. False if there are none. A run that was on its way is
    /// given up.
    pub(super) fn begin(
        &mut self,
        records: &mut Records,
        maximum_age_us: u64,
        maximum_bytes: u64,
        now: Timestamp,
    ) -> Result<bool> {
        let now = self.begin_run(records, now)?;
        let oldest = now.0.saturating_sub(maximum_age_us);
        let small_bytes = u64::from(records.appending.files.segment_bytes() / 4);
        // Where the disk is nearly full, room comes first.
        let spared = self.in_force.iter().map(|(_, bytes)| bytes).sum();
        let spared = if records.space.is_low() { 0 } else { spared };
        let maximum_bytes = maximum_bytes.saturating_add(spared);
        let range = Range::past_retention(&records.archive, oldest, maximum_bytes, small_bytes);
        self.run = range.map(|range| Run::new(range, u64::MAX, records.appending.seed()));
        Ok(self.run.is_some())
    }

    /// Begins to write the next carry segments in turn anew as one, which happens if at least half of what they hold is
    /// needed by nobody any more. So they become fewer, however few messages each has left. False if there are none.
    pub(super) fn begin_thinning(
        &mut self,
        records: &mut Records,
        checkpointed: LogPosition,
        now: Timestamp,
    ) -> Result<bool> {
        self.begin_run(records, now)?;
        let range = Range::of_carries(&records.archive, self.thinned);
        let segments = &records.archive.segments;
        let next = range.and_then(|range| segments.get(range.end)).map(|segment| segment.header.kind);
        self.thinned = range.filter(|_| next == Some(SegmentKind::Carry)).map_or(0, |range| range.end);
        let Some(range) = range.filter(|range| checkpointed >= range.end_position) else { return Ok(false) };
        let carries = segments.get(range.first..range.end).unwrap_or_default();
        let messages: u64 = carries.iter().map(|carry| carry.summary().messages).sum();
        if messages > 0 || carries.len() > 1 {
            // They have nothing but messages.
            self.renewed = self.renewed.max(Some((range.end_position, LogPosition(0))));
            self.run = Some(Run::new(range, messages / 2, records.appending.seed()));
        }
        Ok(self.run.is_some())
    }

    /// Everything below may go while the present run lasts.
    pub(super) fn going_until(&self) -> Offset {
        self.run.as_ref().map_or(Offset(0), |run| run.range.end_offset)
    }

    /// Control records below this number may go while the present run lasts.
    pub(super) fn going_controls(&self) -> u64 {
        self.run.as_ref().map_or(0, |run| run.range.end_control)
    }

    /// Which topics have records in the range: to be found out beside the loop and handed back to `surveyed`.
    pub(super) fn survey_job(&self, archive: &Archive) -> Option<Job> {
        let range = self.run.as_ref()?.range;
        let segments = archive.segments.get(range.first..range.end)?;
        let survey = Survey::new(Arc::clone(&archive.disk), archive.salt, segments.iter());
        Some(Job::new(Task::Survey(survey)))
    }

    /// The survey is at hand.
    pub(super) fn surveyed(&mut self, survey: Survey) {
        if let Some(run) = &mut self.run {
            run.survey = Some(survey);
        }
    }

    /// Writes some more of what the log would lose with the range anew, for about `effort`; true if that was all.
    pub(super) fn renew_piece(&mut self, records: &mut Records, effort: u64, now: Timestamp) -> Result<bool> {
        records.commits.check()?;
        let Some(run) = &mut self.run else { return Ok(true) };
        let range = &run.range;
        if self.renewed.is_some_and(|(until, _)| until >= range.end_position) {
            return Ok(true);
        }
        let end = records.archive.effort.saturating_add(effort);
        let before = records.end_position();
        let all = run.renewal.piece(records, range, end, now)?;
        let after = records.end_position();
        if after > before {
            self.in_force.push((after, after.0.saturating_sub(before.0)));
        }
        if all {
            self.renewed = Some((range.end_position, records.end_position()));
        }
        Ok(all)
    }

    /// True once what was written anew is durable and a checkpoint stands behind the range. Where the disk is nearly
    /// full, room comes first: a checkpoint would take some.
    pub(super) fn may_go_on(&self, records: &Records, checkpointed: LogPosition) -> bool {
        let Some(run) = &self.run else { return true };
        let end = run.range.end_position;
        let durable = self.renewed.is_some_and(|(until, at)| until >= end && records.durable_position() >= at);
        durable && (checkpointed >= end || records.space.is_low())
    }

    /// False if the newest checkpoint does not reach behind the range of the present run.
    pub(super) fn has_checkpoint(&self, checkpointed: LogPosition) -> bool {
        self.run.as_ref().is_none_or(|run| checkpointed >= run.range.end_position)
    }

    /// The places of those of some topics that have records in the range, once it is surveyed: a queue that reads none
    /// of them needs nothing of it and loses nothing. All of them before that.
    pub(super) fn going(&self, records: &mut Records, topics: &[&str]) -> Vec<usize> {
        let Records { archive, derived, .. } = records;
        archive.effort = archive.effort.wrapping_add(wide(topics.len()));
        let survey = self.run.as_ref().and_then(|run| run.survey.as_ref());
        let is_going = |topic: &&str| {
            let known = derived.dictionary.find(topic.as_bytes());
            survey.is_none_or(|survey| known.is_some_and(|topic| survey.present.contains(topic)))
        };
        topics.iter().enumerate().filter(|(_, topic)| is_going(topic)).map(|(place, _)| place).collect()
    }

    /// The names of all topics that have records in the range, once it is surveyed; `None` if they are more than
    /// `maximum`, or one of them is not known any more.
    pub(super) fn going_names(&self, records: &mut Records, maximum: usize) -> Option<Vec<Arc<[u8]>>> {
        let survey = self.run.as_ref()?.survey.as_ref()?;
        let Records { archive, derived, .. } = records;
        let mut names = Vec::new();
        for topic in survey.present.iter().filter(|topic| topic.0 > 0) {
            archive.effort = archive.effort.wrapping_add(1);
            if names.len() >= maximum {
                return None;
            }
            names.push(derived.dictionary.shared_name(topic)?);
        }
        Some(names)
    }

    /// There are queues; these are to be looked at, groups before the sessions that take from them. After a crash any
    /// queue may read on from before the range, where it must not find a hole.
    pub(super) fn visit(&mut self, cursors: Vec<RetentionCursor>) {
        if let Some(run) = &mut self.run {
            run.needs.queues = true;
            run.waiting.extend(cursors);
        }
    }

    /// Looks at some more of them, for about `effort`. What they lose, and true if none waits any more.
    pub(super) fn visit_piece(
        &mut self,
        records: &mut Records,
        filters: &mut FilterMemory,
        checkpointed: LogPosition,
        effort: u64,
    ) -> Result<(Vec<Loss>, bool)> {
        let may_go_on = self.may_go_on(records, checkpointed);
        let mut losses = Vec::new();
        let Some(run) = &mut self.run else { return Ok((losses, true)) };
        check(may_go_on && run.survey.is_some())?;
        let end = records.archive.effort.saturating_add(effort);
        while records.archive.effort < end {
            let Some(visit) = run.next_visit() else { break };
            records.archive.effort = records.archive.effort.wrapping_add(1);
            match run.look_at(visit, records, filters, end)? {
                Visited::Done(loss) => losses.extend(loss),
                Visited::Later(visit) => run.visit = Some(*visit),
            }
        }
        Ok((losses, run.has_visited_all()))
    }

    /// Finds some more of what is needed besides what queues need, for about `effort`; true if that is all. To be
    /// called when all queues have been visited: a group may have handed over meanwhile what it was to give then.
    pub(super) fn find_piece(&mut self, records: &mut Records, checkpointed: LogPosition, effort: u64) -> Result<bool> {
        let may_go_on = self.may_go_on(records, checkpointed);
        let Some(run) = &mut self.run else { return Ok(true) };
        check(may_go_on && run.survey.is_some() && run.has_visited_all())?;
        let durable = records.durable_position();
        let looked = match run.search {
            Search::Retained(from) => run.find_retained(&mut records.derived, from, durable, effort),
            Search::Parties(after) => run.find_handed_over(&records.derived, after, effort),
            Search::Done => 0,
        };
        records.archive.effort = records.archive.effort.wrapping_add(looked);
        Ok(matches!(run.search, Search::Done))
    }

    /// What was found needed is to be copied beside the loop, and handed back to `carried`. `None` before all of it has
    /// been looked for.
    pub(super) fn carry_job(&mut self, appending: &mut Appending, now: Timestamp) -> Option<Job> {
        let run = self.run.as_mut().filter(|run| matches!(run.search, Search::Done))?;
        let survey = run.survey.take()?;
        let needs = std::mem::replace(&mut run.needs, Needs::new(0));
        let range = run.range;
        let header = Header {
            kind: SegmentKind::Carry,
            number: appending.files.take_number(),
            created_at: now,
            end_offset: range.end_offset,
            end_position: range.end_position,
            ..range.base
        };
        let (end_control, messages_maximum) = (range.end_control, run.messages_maximum);
        let plan = CarryPlan { header, end_control, messages_maximum, seed: appending.seed() };
        Some(Job::new(Task::Carry(Box::new(CarryWrite::new(survey.files, needs, &plan)))))
    }

    /// The run is given up; nothing has gone.
    pub(super) fn abandon(&mut self) {
        self.run = None;
    }

    /// The carry segment, if there is one, takes the place of the range, whose files are to go.
    pub(super) fn carried(&mut self, archive: &mut Archive, mut write: Box<CarryWrite>) -> Finished {
        let Some(run) = self.run.take() else { return Finished::default() };
        self.in_force.retain(|(end, _)| *end > run.range.end_position);
        let carried_records = write.messages();
        let mut gone = VecDeque::new();
        for _ in run.range.first..run.range.end {
            gone.extend(archive.remove(run.range.first));
        }
        // Those behind the range have other places now.
        self.thinned = self.thinned.min(run.range.first.saturating_add(1));
        if let Some(carry) = write.segment.take() {
            archive.segments.insert(run.range.first.min(archive.segments.len()), carry);
        }
        let removed_segments = wide(gone.len());
        let next = Some(Job::removal(Arc::clone(&archive.disk), gone, write));
        Finished { removed_segments, carried_records, next }
    }

    fn begin_run(&mut self, records: &mut Records, now: Timestamp) -> Result<Timestamp> {
        self.run = None;
        records.commits.check()?;
        Ok(records.appending.head.advance(now))
    }
}

impl Run {
    fn new(range: Range, messages_maximum: u64, seed: u64) -> Run {
        Run {
            range,
            messages_maximum,
            renewal: Renewal::default(),
            survey: None,
            needs: Needs::new(seed),
            waiting: VecDeque::new(),
            visit: None,
            search: Search::Retained(range.base.base_offset),
        }
    }

    fn has_visited_all(&self) -> bool {
        self.waiting.is_empty() && self.visit.is_none()
    }

    fn next_visit(&mut self) -> Option<Visit> {
        let waiting = &mut self.waiting;
        let next = || waiting.pop_front().map(|cursor| Visit { cursor, from: None, kept_from: None, question: None });
        self.visit.take().or_else(next)
    }

    /// What one queue needs of the range, and what it loses of it. What it loses of an older carry segment is told when
    /// that goes.
    fn look_at(
        &mut self,
        mut visit: Visit,
        records: &mut Records,
        filters: &mut FilterMemory,
        until: u64,
    ) -> Result<Visited> {
        let (range_end, cursor) = (self.range.end_offset, &visit.cursor);
        let from = *visit.from.get_or_insert_with(|| {
            // A run that was given up may have told some of it before.
            let from = cursor.mark.max(self.range.base.base_offset);
            let known = records.derived.parties.get(cursor.party).map(|known| &known.state);
            known.map_or(from, |state| Offset(state.acknowledged.first_gap(from.max(state.mark).0)))
        });
        let kept_from = match visit.kept_from {
            Some(kept_from) => kept_from,
            None => {
                let wanted = if from < range_end { self.wanted_of(cursor, records) } else { Vec::new() };
                if wanted.is_empty() {
                    return Ok(Visited::Done(None));
                }
                let Some(kept_from) = visit.kept_from(records, filters, from, until)? else {
                    return Ok(Visited::Later(Box::new(visit)));
                };
                let kept_from = kept_from.min(range_end);
                self.need(&visit.cursor, &wanted, kept_from.max(from));
                (visit.kept_from, visit.question) = (Some(kept_from), None);
                kept_from
            }
        };
        if kept_from <= from {
            return Ok(Visited::Done(None));
        }
        let Some(lost) = visit.ask((from, kept_from), Wanted::Count, records, filters, until)? else {
            return Ok(Visited::Later(Box::new(visit)));
        };
        let loss = Loss { party: visit.cursor.party, first: from, end: kept_from, count: lost };
        Ok(Visited::Done((lost > 0).then_some(loss)))
    }

    /// The subscriptions of a queue that can match something of the range, by their places; with the topic of those
    /// that match only one.
    fn wanted_of(&self, cursor: &RetentionCursor, records: &mut Records) -> Vec<(usize, Option<TopicId>)> {
        let Records { archive, derived, .. } = records;
        let is_present = |topic| self.survey.as_ref().is_some_and(|survey| survey.present.contains(topic));
        let mut wanted = Vec::new();
        for (place, item) in cursor.subscriptions.iter().enumerate() {
            archive.effort = archive.effort.wrapping_add(1);
            let topic = if has_wildcard(&item.filter) { None } else { Some(derived.dictionary.find(&item.filter)) };
            match topic {
                Some(Some(topic)) if is_present(topic) => wanted.push((place, Some(topic))),
                Some(_) => {}
                None => wanted.push((place, None)),
            }
        }
        wanted
    }

    /// What these subscriptions of a queue match from an offset on outlives the range.
    fn need(&mut self, cursor: &RetentionCursor, wanted: &[(usize, Option<TopicId>)], from: Offset) {
        for (place, topic) in wanted {
            let Some(item) = cursor.subscriptions.get(*place) else { continue };
            let (first, end) = (item.from.max(from), item.until.min(self.range.end_offset));
            match topic {
                Some(topic) => self.needs.add_topic(*topic, first, end),
                None => self.needs.add_filter(&item.filter, first, end),
            }
        }
    }

    /// Retained messages in force. Those that are replaced before the walk comes to them are in doubt as long as a
    /// crash would bring them back, and are asked for when it has ended. How many were looked at.
    fn find_retained(&mut self, derived: &mut Derived, from: Offset, durable: LogPosition, effort: u64) -> u64 {
        let mut looked = 0_u64;
        for offset in derived.retained.between(from, self.range.end_offset) {
            if looked >= effort {
                self.search = Search::Retained(offset);
                return looked;
            }
            looked = looked.saturating_add(1);
            self.needs.offsets.push(offset);
        }
        let in_doubt = derived.retained.in_doubt(durable);
        self.needs.offsets.extend(in_doubt.filter(|offset| self.range.contains(*offset)));
        self.search = Search::Parties(None);
        looked
    }

    /// What groups have handed over and its receiver does not have yet. How much was looked at.
    fn find_handed_over(&mut self, derived: &Derived, after: Option<Party>, effort: u64) -> u64 {
        let mut looked = 0_u64;
        let mut last = after;
        for (party, known) in derived.parties.after(after) {
            if looked >= effort {
                self.search = Search::Parties(last);
                return looked;
            }
            last = Some(party);
            looked = looked.saturating_add(1).saturating_add(wide(known.state.flights.len()));
            let open = known.state.handed_over().map(|(offset, _)| offset);
            self.needs.offsets.extend(open.filter(|offset| self.range.contains(*offset)));
        }
        self.search = Search::Done;
        looked
    }
}

impl Visit {
    /// The first offset that the queue keeps. It is counted only where there are more messages than it may have.
    fn kept_from(
        &mut self,
        records: &mut Records,
        filters: &mut FilterMemory,
        from: Offset,
        until: u64,
    ) -> Result<Option<Offset>> {
        let (most, maximum) = (records.durable_offset().0.saturating_sub(from.0), self.cursor.messages_maximum);
        let keep_from = self.cursor.keep_from;
        if most <= maximum && self.question.is_none() {
            return Ok(Some(keep_from.max(from)));
        }
        let newest = self.ask((from, Offset(u64::MAX)), Wanted::Newest(maximum), records, filters, until)?;
        Ok(newest.map(|newest| Offset(newest).max(keep_from)))
    }

    fn ask(
        &mut self,
        range: (Offset, Offset),
        wanted: Wanted,
        records: &mut Records,
        filters: &mut FilterMemory,
        until: u64,
    ) -> Result<Option<u64>> {
        let cursor = &self.cursor;
        let question = self.question.get_or_insert_with(|| {
            Question::new(cursor.subscriptions.as_slice().into(), cursor.party, range, Timestamp(0), wanted)
        });
        let left = until.saturating_sub(records.archive.effort);
        Looking::into(records, filters).answer(question, left)
    }
}

fn has_wildcard(filter: &[u8]) -> bool {
    filter.iter().any(|byte| matches!(byte, b'+' | b'#'))
}

fn check(may_look: bool) -> Result<()> {
    let too_early = || Error::Invalid("what outlives the range is not durable yet".to_owned());
    may_look.then_some(()).ok_or_else(too_early)
}
