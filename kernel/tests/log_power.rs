//! What power cuts and failed syncs leave of the log: whatever part of a group reached the medium, and whichever names
//! of files did. The faults that these tests are there to find are planted by `make mutants`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod delivery_support;
mod log_support;

use delivery_support::reads;
use holdfast_kernel::delivery::{Attachment, Deliveries};
use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::disk::Disk;
use holdfast_kernel::error::Error;
use holdfast_kernel::flow::state::State;
use holdfast_kernel::flow::{Acknowledgement, Arrivals, Departure, Messages, Outgoing, Step};
use holdfast_kernel::ids::{Connection, Offset, Party, Timestamp};
use holdfast_kernel::mqtt::exchange;
use holdfast_kernel::store::Log;
use log_support::{arrivals, message, open, options, scan_all, Stored};
use std::collections::BTreeSet;
use std::sync::Arc;

const SEEDS: u64 = 24;

/// Who publishes in these tests.
const PUBLISHER: Party = Party(7);

/// Appends `count` messages of `size` bytes.
fn put(log: &mut Log, count: u64, size: usize) {
    for _ in 0..count {
        let payload = vec![(log.end_offset().0 % 251) as u8; size];
        log.append(&mut arrivals(&[message("a", &payload)]), &[""; 0], Timestamp(5)).unwrap();
    }
}

/// Everything from offset 0 on is there, each with its own bytes, and at least `durable` messages.
fn check_whole(log: &mut Log, durable: u64, context: &str) {
    let found = scan_all(log, "a", 0, 50);
    let offsets: Vec<u64> = found.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (0..log.end_offset().0).collect::<Vec<_>>(), "{context}: there is no gap");
    assert!(log.end_offset().0 >= durable, "{context}: {} of {durable} messages are left", log.end_offset().0);
    assert!(found.iter().all(|(offset, stored)| stored.payload.first() == Some(&((offset % 251) as u8))), "{context}");
}

/// The power is cut and the log opened again, twice: nothing durable is lost, and nothing is taken for damage.
fn check_crashes(disk: &FakeDisk, durable: u64, context: &str) {
    for life in 0..2 {
        disk.crash();
        let (mut log, recovery) = open(disk, options());
        assert_eq!(recovery.damaged, vec![], "{context}, life {life}");
        check_whole(&mut log, durable, context);
    }
}

fn content(disk: &FakeDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, false).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_group_of_several_segments_is_there_from_its_start_up_to_some_place() {
    for seed in 0..SEEDS {
        for writes in 0..24 {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, _) = open(&disk, options());
            put(&mut log, 5, 1_000);
            log.commit().unwrap();
            put(&mut log, 60, 1_000);
            disk.stop_after(writes);
            let durable = if log.commit().is_ok() { 65 } else { 5 };
            check_crashes(&disk, durable, &format!("seed {seed}, {writes} writes"));
        }
    }
}

#[test]
fn what_a_start_shows_after_a_failed_sync_outlives_the_next_power_cut() {
    let mut shown = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = FakeDisk::new(seed, 1 << 30);
        let (mut log, _) = open(&disk, options());
        put(&mut log, 5, 1_000);
        log.commit().unwrap();
        put(&mut log, 5 + seed % 20, 1_000);
        disk.fail_next_sync();
        assert!(log.commit().is_err());
        drop(log);
        // The process begins anew and the power stays on: what was written can be read, and counts as durable.
        let (log, _) = open(&disk, options());
        let durable = log.durable_offset().0;
        shown.insert(durable > 5);
        check_crashes(&disk, durable, &format!("seed {seed}"));
    }
    assert!(shown.contains(&true), "nothing was at stake");
}

#[test]
fn the_log_keeps_its_identity_wherever_a_start_is_cut_short() {
    for seed in 0..SEEDS {
        for writes in 0..8 {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (log, _) = open(&disk, options());
            let epoch = log.epoch();
            drop(log);
            disk.crash();
            let identity = content(&disk, "format");
            assert!(String::from_utf8_lossy(&identity).contains(&epoch), "seed {seed}");
            disk.stop_after(writes);
            drop(Log::open(Arc::new(disk.clone()), options(), Timestamp(1_000)));
            disk.crash();
            assert_eq!(content(&disk, "format"), identity, "seed {seed}, {writes} writes");
        }
    }
}

#[test]
fn a_checkpoint_that_was_committed_is_there_after_a_power_cut() {
    for seed in 0..SEEDS {
        let disk = FakeDisk::new(seed, 1 << 30);
        let (mut log, _) = open(&disk, options());
        put(&mut log, 5, 1_000);
        log.checkpoint(Timestamp(5)).unwrap();
        log.commit().unwrap();
        disk.crash();
        assert!(open(&disk, options()).1.from_checkpoint, "seed {seed}");
    }
}

#[test]
fn a_group_that_found_no_space_is_vouched_for_by_nobody_until_it_is_durable() {
    for seed in 0..SEEDS {
        // What gathers meanwhile stays in memory, or fills segments of its own.
        for (gathered, writes) in [1, 30].into_iter().flat_map(|gathered| (0..12).map(move |writes| (gathered, writes)))
        {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, _) = open(&disk, options());
            put(&mut log, 1, 10);
            log.commit().unwrap();
            // A record that reaches beyond what was set aside for its segment.
            put(&mut log, 1, 40_000);
            let commit = log.begin_commit().unwrap().unwrap();
            put(&mut log, gathered, 1_000);
            disk.set_capacity(0);
            let ended = commit.run();
            disk.set_capacity(1 << 30);
            assert!(matches!(log.finish_commit(commit, ended), Err(Error::Disk { full: true, .. })));
            disk.stop_after(writes);
            let durable = if log.commit().is_ok() { 2 + gathered } else { 1 };
            check_crashes(&disk, durable, &format!("seed {seed}, {gathered} gathered, {writes} writes"));
        }
    }
}

#[test]
fn append_times_go_on_from_the_newest_record_whatever_the_clock_says() {
    for (with_checkpoint, seed) in [(false, 1), (true, 2)] {
        let disk = FakeDisk::new(seed, 1 << 30);
        let (mut log, _) = open(&disk, options());
        log.append(&mut arrivals(&[message("a", b"1")]), &[""; 0], Timestamp(9_000_000)).unwrap();
        if with_checkpoint {
            log.checkpoint(Timestamp(0)).unwrap();
        }
        log.commit().unwrap();
        disk.crash();
        // Its clock says 1 000 now.
        let (mut log, recovery) = open(&disk, options());
        assert_eq!(recovery.from_checkpoint, with_checkpoint);
        log.append(&mut arrivals(&[message("a", b"2")]), &[""; 0], Timestamp(1_001)).unwrap();
        log.commit().unwrap();
        let location = log.locate(Offset(1)).unwrap().unwrap();
        let appended_at = log.message(location, Offset(1)).unwrap().unwrap().appended_at;
        assert!(appended_at >= Timestamp(9_000_000), "{appended_at:?}, from a checkpoint: {with_checkpoint}");
    }
}

/// The packet identifiers of QoS 2 that the log knows as received from the publisher.
fn unreleased(log: &Log) -> Vec<u16> {
    let state = log.delivery_state(PUBLISHER).map(|bytes| State::decode(&bytes).unwrap());
    state.unwrap_or_default().unreleased.into_iter().collect()
}

#[test]
fn a_stored_message_is_known_by_its_publishers_identifier_after_a_power_cut() {
    for (with_checkpoint, seed) in [(false, 1), (true, 2)] {
        let disk = FakeDisk::new(seed, 1 << 30);
        let (mut log, _) = open(&disk, options());
        let exactly_once = |payload: &[u8]| Stored { qos: 2, ..message("a", payload) };
        log.append(&mut arrivals(&[exactly_once(b"1"), exactly_once(b"2")]), &[""; 0], Timestamp(5)).unwrap();
        assert_eq!(unreleased(&log), [1, 2]);
        if with_checkpoint {
            log.checkpoint(Timestamp(5)).unwrap();
        }
        log.commit().unwrap();
        disk.crash();
        let (log, recovery) = open(&disk, options());
        assert_eq!((unreleased(&log), recovery.from_checkpoint), (vec![1, 2], with_checkpoint));
    }
}

fn completions(deliveries: &mut Deliveries, log: &Log) -> usize {
    let mut outgoing = Outgoing::default();
    deliveries.settle(log.durable_offset(), log.durable_position(), &mut outgoing);
    let is_completion =
        |packet: &&Departure| matches!(packet, Departure::Acknowledgement(sent) if sent.step == Step::Completed);
    outgoing.departures.iter().filter(is_completion).count()
}

#[test]
fn whoever_was_told_that_an_identifier_is_free_may_use_it_again_after_a_power_cut() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    log.append(&mut arrivals(&[Stored { qos: 2, ..message("a", b"1") }]), &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
    let mut deliveries = Deliveries::default();
    let attachment = Attachment {
        party: PUBLISHER,
        state: State::decode(&log.delivery_state(PUBLISHER).unwrap()).unwrap(),
        subscriptions: reads(),
        receive_maximum: 10,
        end: Offset(1),
        entries_maximum: 0,
        pack_maximum: 0,
    };
    deliveries.attach(Connection(1), attachment).unwrap();
    let step = Step::Released;
    let released = Acknowledgement { connection: Connection(1), step, packet_identifier: 1, refusal: None };
    deliveries.admit(
        &Arrivals { acknowledgements: vec![released], ..Arrivals::default() },
        log.end_position(),
        exchange::next,
    );
    assert_eq!(completions(&mut deliveries, &log), 0, "PUBCOMP waits for the record");
    for (party, value) in deliveries.take_progress() {
        log.append_control(0, &party.0.to_le_bytes(), &value, Timestamp(6)).unwrap();
    }
    deliveries.progressed(log.end_position());
    assert_eq!(completions(&mut deliveries, &log), 0, "and until that is durable");
    log.commit().unwrap();
    assert_eq!(completions(&mut deliveries, &log), 1);
    disk.crash();
    let (log, _) = open(&disk, options());
    assert_eq!(unreleased(&log), Vec::<u16>::new(), "a new message under it is no repetition");
}
