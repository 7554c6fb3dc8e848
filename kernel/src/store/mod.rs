//! The durable log: append, commit, recover, read by offset, topic or time, retain (docs/formats/log.md).
//!
//! Owns: the files of a data directory and their formats (`docs/formats/log.md`). Never: which messages matter to
//! whom, beyond filters and offsets that the caller names. Stands between route (who wants a message) and delivery
//! (who gets it when).

mod ahead;
mod append;
mod archive;
mod blocks;
mod cache;
mod carry;
mod checkpoint;
mod columns;
mod commit;
mod controls;
mod counting;
mod course;
mod criteria;
mod damage;
mod derived;
mod dictionary;
mod encoding;
mod files;
mod filters;
mod footer;
mod group;
mod head;
mod header;
mod holes;
mod identity;
mod in_force;
mod index;
mod job;
mod leap;
mod levels;
mod log;

mod nameless;
mod options;
mod parties;
mod progress;
mod query;
mod range;
mod reader;
mod record;
mod recorded;
mod records;
mod recovery;
mod release;
mod renewal;
mod replay;
mod resync;
mod retained;
mod retention;
mod scan;
mod seal;
mod segment;
mod shards;
mod snapshot;
mod space;
mod stretch;
mod tail;
mod unpacked;
mod verify;

pub use columns::{Bits, Bytes, ColumnSet, Columns, Properties};
pub use commit::{Commit, Ended};
pub use controls::{ControlRow, Controls};
pub use counting::{Question, Wanted};
pub use criteria::{Criteria, Filter, Pattern};
pub use damage::Damage;
pub use header::SegmentKind;
pub use job::{Finished, Job};
pub use log::Log;
pub use options::{Durability, Options};
pub use progress::{Acknowledged, Stretch};
pub use query::{Limits, Reach};
pub use reader::{LogReader, SegmentDescription};
pub use recovery::Recovery;
pub use retention::{Loss, RetentionCursor};
