//! The durable log: append, commit, recover, read by offset, topic or time, retain (docs/formats/log.md).
//!
//! Owns: the files of a data directory and their formats (`docs/formats/log.md`). Never: which messages matter to
//! whom, beyond filters and offsets that the caller names. Stands between route (who wants a message) and dispatch
//! (who gets it when).

mod append;
mod archive;
mod blocks;
mod checkpoint;
mod commit;
mod counting;
mod dictionary;
mod encoding;
mod footer;
mod header;
mod identity;
mod in_force;
mod index;
mod log;
mod parties;
mod record;
mod recovery;
mod replay;
mod retained;
mod scan;
mod tail;

pub use commit::{Commit, Ended};
pub use log::{ControlRow, Durability, Log, Options};
pub use recovery::{Damage, Recovery};
