//! Where the log ends: what the next record gets.

use super::encoding::wide;
use super::record::{Kind, Record};
use crate::ids::{LogPosition, Offset, Timestamp};

/// Where the next record goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head {
    pub(super) offset: u64,
    pub(super) control: u64,
    pub(super) position: u64,
    pub(super) time: u64,
}

/// Where a part of the log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// The offset of the next message.
    pub(super) offset: Offset,
    /// The number of the next control record.
    pub(super) control: u64,
    /// The log position.
    pub(super) position: LogPosition,
}

impl Head {
    /// Append time: never before what was appended last.
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.time = self.time.max(now.0);
        Timestamp(self.time)
    }

    /// A record of so many bytes has been appended.
    pub(super) fn pass(&mut self, record: &Record<'_>, size_bytes: usize) {
        self.position = self.position.saturating_add(wide(size_bytes));
        match record.kind {
            Kind::Message | Kind::Entry => self.offset = self.offset.saturating_add(u64::from(record.count)),
            Kind::Control => self.control = self.control.saturating_add(1),
            Kind::Topic | Kind::Marker => {}
        }
    }

    /// The end of all that has been appended.
    pub(super) fn ends(&self) -> Ends {
        Ends { offset: Offset(self.offset), control: self.control, position: LogPosition(self.position) }
    }

    /// The marker that vouches for all of it.
    pub(super) fn marker(&self) -> Record<'static> {
        Record::marker(LogPosition(self.position), Offset(self.offset), Timestamp(self.time))
    }
}
