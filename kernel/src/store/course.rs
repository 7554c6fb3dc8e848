//! How a queue reads a segment: not at all, in order, or at positions that are merged from the postings of its topics.
//!
//! Owns: windows of segments whose positions are known. Never: is needed for an answer; what is forgotten is merged
//! again.
//!
//! Invariants:
//! 1. The positions of a window are all there are in it of what the queue wants.
//! 2. Merging goes on where it stopped: it ends, and no piece of it takes much more than its effort.

use super::archive::Archive;
use super::cache::Cache;
use super::encoding::wide;
use super::filters::Topics;
use super::record::HEADER_BYTES;
use super::segment::Indexed;
use crate::error::Result;
use crate::flow::Subscription;
use crate::limits::WINDOW_MEMORY_BYTES_MAXIMUM;
use roaring::RoaringBitmap;
use std::sync::Arc;

/// Where more than this part of a window is wanted it is read in order.
const IN_ORDER_SHARE: u64 = 4;

/// Bytes of a segment whose postings are merged at once. A window ends at the first mark behind a multiple of it, so
/// that queues share windows.
const WINDOW_BYTES: u32 = 16_777_216;

/// Topics whose postings are merged in one step.
const TOPICS_AT_ONCE: usize = 2_048;

/// From so many topics on the positions of a window are kept for other queues with the same filters.
const SHARED_TOPICS_MINIMUM: u64 = 256;

/// Positions that are merged with the effort of one look.
const POSITIONS_PER_EFFORT: u64 = 4;

/// What a window costs beside its positions and filters.
const WINDOW_OVERHEAD_BYTES: usize = 128;

/// How a window of a segment is read.
pub(super) enum Course {
    /// There is nothing in the segment.
    Skip,
    /// All records, up to this position.
    InOrder(u32),
    /// These positions, which are all there are before another one.
    Positions(Arc<Vec<u32>>, u32),
    /// That is still being found out.
    Unknown,
}

/// What a queue wants.
pub(super) struct Wanted<'a> {
    /// The topics that its filters match, once they are known.
    pub topics: Option<&'a Topics>,
    /// Those filters.
    pub filters: &'a [Subscription],
}

/// The course of one queue.
#[derive(Default)]
pub(super) struct Courses {
    known: Option<Known>,
    merging: Option<Merging>,
}

/// Windows that queues with the same filters share: by filters, segment and first position.
pub(super) struct Windows(Cache<WindowKey, Positions>);

type WindowKey = (Arc<[u8]>, u32, u32);

/// The positions of a window, in order; `None` where it is better read in order.
type Positions = Option<Arc<Vec<u32>>>;

/// A window whose course is known. A segment that grows does so behind it.
struct Known {
    window: Window,
    positions: Positions,
}

/// A window whose positions are being merged.
struct Merging {
    window: Window,
    /// Topics that are left.
    left: RoaringBitmap,
    positions: Vec<u32>,
    /// With more positions it is read in order.
    limit: u64,
    /// The queue's filters, if others may have the same.
    filters: Option<Arc<[u8]>>,
}

#[derive(Clone, Copy)]
struct Window {
    segment: u32,
    low: u32,
    high: u32,
    /// Nothing comes to lie in it any more.
    is_whole: bool,
}

impl Window {
    /// The one that a position lies in. It begins and ends with a record.
    fn around(archive: &mut Archive, place: usize, start: u32) -> Result<Option<Window>> {
        let Some(segment) = archive.segments.get(place) else { return Ok(None) };
        let (number, end) = (segment.header.number, segment.end);
        let grows = matches!(segment.index, Indexed::Open(_));
        let marks = archive.marks(place)?;
        let bound = |of: u32| {
            let wanted = of.saturating_mul(WINDOW_BYTES);
            let found = marks.get(marks.partition_point(|mark| mark.position < wanted));
            found.map(|mark| mark.position).filter(|position| of > 0 && *position <= end)
        };
        let of = start.checked_div(WINDOW_BYTES).unwrap_or_default();
        let of = if bound(of).is_some_and(|low| low <= start) { of } else { of.saturating_sub(1) };
        let (low, high) = (bound(of).unwrap_or_default(), bound(of.saturating_add(1)));
        let is_whole = high.is_some() || !grows;
        Ok(Some(Window { segment: number, low, high: high.unwrap_or(end), is_whole }))
    }
}

impl Windows {
    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl Default for Windows {
    fn default() -> Windows {
        Windows(Cache::new(WINDOW_MEMORY_BYTES_MAXIMUM, 55))
    }
}

impl Courses {
    /// How many positions are held.
    pub fn positions(&self) -> usize {
        let known = self.known.as_ref().and_then(|known| known.positions.as_ref()).map_or(0, |known| known.len());
        known.saturating_add(self.merging.as_ref().map_or(0, |merging| merging.positions.len()))
    }

    /// How the segment is read from `start` on. Finding that out gives way when the archive's effort has reached
    /// `until`.
    pub fn course(
        &mut self,
        archive: &mut Archive,
        windows: &mut Windows,
        wanted: &Wanted<'_>,
        (place, start): (usize, u32),
        until: u64,
    ) -> Result<Course> {
        let Some(number) = archive.segments.get(place).map(|segment| segment.header.number) else {
            return Ok(Course::Skip);
        };
        let is_in = |window: &Window| window.segment == number && (window.low..window.high).contains(&start);
        if let Some(known) = self.known.as_ref().filter(|known| is_in(&known.window)) {
            return Ok(known.course());
        }
        let merging = match self.merging.take().filter(|merging| is_in(&merging.window)) {
            Some(merging) => merging,
            None => match Merging::begin(archive, wanted, (place, start))? {
                Begun::Known(course) => return Ok(course),
                Begun::InOrder(window) => return Ok(self.know(Known { window, positions: None })),
                Begun::Merging(merging) => match windows.find(&merging) {
                    Some(positions) => return Ok(self.know(Known { window: merging.window, positions })),
                    None => merging,
                },
            },
        };
        self.merge(archive, windows, merging, (place, until))
    }

    fn merge(
        &mut self,
        archive: &mut Archive,
        windows: &mut Windows,
        mut merging: Merging,
        (place, until): (usize, u64),
    ) -> Result<Course> {
        loop {
            if wide(merging.positions.len()) > merging.limit {
                let known = Known { window: merging.window, positions: None };
                windows.put(&merging, &known);
                return Ok(self.know(known));
            }
            if merging.left.is_empty() {
                break;
            }
            merging.step(archive, place)?;
            if archive.effort >= until {
                self.merging = Some(merging);
                return Ok(Course::Unknown);
            }
        }
        let mut positions = std::mem::take(&mut merging.positions);
        positions.sort_unstable();
        archive.effort = archive.effort.saturating_add(wide(positions.len()) / POSITIONS_PER_EFFORT);
        let known = Known { window: merging.window, positions: Some(Arc::new(positions)) };
        windows.put(&merging, &known);
        Ok(self.know(known))
    }

    fn know(&mut self, known: Known) -> Course {
        let course = known.course();
        self.known = Some(known);
        course
    }
}

impl Known {
    fn course(&self) -> Course {
        match &self.positions {
            Some(positions) => Course::Positions(Arc::clone(positions), self.window.high),
            None => Course::InOrder(self.window.high),
        }
    }
}

/// What comes of a first look at a window.
enum Begun {
    Known(Course),
    InOrder(Window),
    Merging(Merging),
}

impl Merging {
    fn begin(archive: &mut Archive, wanted: &Wanted<'_>, (place, start): (usize, u32)) -> Result<Begun> {
        let (Some(window), Some(topics)) = (Window::around(archive, place, start)?, wanted.topics) else {
            return Ok(Begun::Known(Course::Skip));
        };
        let (end, records) = archive.segments.get(place).map_or((0, 0), |it| (it.end, it.summary().records));
        let left = archive.queued_topics(place)?.as_ref() & topics.as_ref();
        archive.effort = archive.effort.saturating_add(1);
        if left.is_empty() {
            return Ok(Begun::Known(Course::Skip));
        }
        // Where little is left to read, or much of it is wanted, looking up every topic would cost more.
        let to_read = u64::from(window.high.saturating_sub(start)) / wide(HEADER_BYTES);
        if left.len() > to_read.min(records) / IN_ORDER_SHARE {
            return Ok(Begun::InOrder(window));
        }
        let share = u64::from(window.high.saturating_sub(window.low)).saturating_mul(records);
        let limit = share.checked_div(u64::from(end)).unwrap_or_default() / IN_ORDER_SHARE;
        let filters = (left.len() >= SHARED_TOPICS_MINIMUM).then(|| joined(wanted.filters));
        Ok(Begun::Merging(Merging { window, left, positions: Vec::new(), limit, filters }))
    }

    fn step(&mut self, archive: &mut Archive, place: usize) -> Result<()> {
        let some: RoaringBitmap = self.left.iter().take(TOPICS_AT_ONCE).collect();
        self.left.remove_smallest(wide(TOPICS_AT_ONCE));
        archive.queued_positions(place, &some, self.window.low, self.window.high, &mut self.positions)
    }

    fn key(&self) -> Option<WindowKey> {
        let filters = self.filters.as_ref()?;
        Some((Arc::clone(filters), self.window.segment, self.window.low))
    }
}

impl Windows {
    fn find(&mut self, merging: &Merging) -> Option<Positions> {
        self.0.get(&merging.key()?).cloned()
    }

    /// Keeps a window in which nothing can come any more.
    fn put(&mut self, merging: &Merging, known: &Known) {
        if let Some(key) = merging.key().filter(|_| merging.window.is_whole) {
            let positions = known.positions.as_ref().map_or(0, |positions| positions.len());
            let size = positions.saturating_mul(size_of::<u32>()).saturating_add(key.0.len());
            self.0.put(key, known.positions.clone(), size.saturating_add(WINDOW_OVERHEAD_BYTES));
        }
    }
}

/// Filters as one key; none of them has a zero in it.
fn joined(filters: &[Subscription]) -> Arc<[u8]> {
    let size = filters.iter().map(|subscription| subscription.filter.len().saturating_add(1)).sum();
    let mut key = Vec::with_capacity(size);
    for subscription in filters {
        key.extend_from_slice(&subscription.filter);
        key.push(0);
    }
    key.into()
}
