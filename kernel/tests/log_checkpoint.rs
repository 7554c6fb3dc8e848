//! Checkpoints that are taken down while the log goes on, and retention that goes on while the log does.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod log_support;

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::disk::Disk;
use holdfast_kernel::flow::state::{Changes, Flight, Owed, Phase, Source, State};
use holdfast_kernel::ids::{Offset, Party, Timestamp};
use holdfast_kernel::store::{Job, Log};
use log_support::{arrivals, message, open, options, without_checkpoints, Stored, TOPICS};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append(usize, bool, bool),
    Control(u8, u8),
    Changes(u32, Change),
    /// The whole state as it is, without what is in flight at QoS 1 or with it.
    Rest(u32, bool),
    Remove(u32),
    Commit,
    Begin,
    Piece(u64),
    Write,
    Crash,
}

#[derive(Clone, Debug)]
enum Change {
    Mark(u64),
    Acknowledged(u64),
    Sent(u16, u64),
    SentByGroup(u16, u64),
    Received(u16),
    Completed(u16),
    Released(u16),
    Owed(u64),
    OwedDone(u64),
}

fn change() -> impl Strategy<Value = Change> {
    let (identifier, offset) = (1_u16..4, 0_u64..12);
    prop_oneof![
        offset.clone().prop_map(Change::Mark),
        offset.clone().prop_map(Change::Acknowledged),
        (identifier.clone(), offset.clone()).prop_map(|(identifier, offset)| Change::Sent(identifier, offset)),
        (identifier.clone(), offset.clone()).prop_map(|(identifier, offset)| Change::SentByGroup(identifier, offset)),
        identifier.clone().prop_map(Change::Received),
        identifier.clone().prop_map(Change::Completed),
        identifier.prop_map(Change::Released),
        offset.clone().prop_map(Change::Owed),
        offset.prop_map(Change::OwedDone),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let party = || 1_u32..6;
    prop_oneof![
        3 => (0..TOPICS.len(), any::<bool>(), any::<bool>())
            .prop_map(|(topic, retain, empty)| Step::Append(topic, retain, empty)),
        2 => (0_u8..5, 0_u8..3).prop_map(|(key, value)| Step::Control(key, value)),
        8 => (party(), change()).prop_map(|(party, change)| Step::Changes(party, change)),
        1 => (party(), any::<bool>()).prop_map(|(party, in_flight)| Step::Rest(party, in_flight)),
        1 => party().prop_map(Step::Remove),
        3 => Just(Step::Commit),
        1 => Just(Step::Begin),
        6 => (1_u64..4).prop_map(Step::Piece),
        4 => Just(Step::Write),
        1 => Just(Step::Crash),
    ]
}

/// The group that hands messages over; it is walked in the middle of those that take from it.
const GROUP: Party = Party(3);

fn encoded(change: &Change) -> Vec<u8> {
    let owed = |offset| Owed { offset, qos: 1, identifier: None };
    let mut changes = Changes::default();
    match *change {
        Change::Mark(offset) => changes.mark = Some(Offset(offset)),
        Change::Acknowledged(offset) => changes.acknowledged = vec![(Offset(offset), Offset(offset + 1))],
        Change::Sent(identifier, offset) => changes.sent = vec![(identifier, Offset(offset), Source::Queue)],
        Change::SentByGroup(identifier, offset) => {
            changes.sent = vec![(identifier, Offset(offset), Source::Group(GROUP))];
        }
        Change::Received(identifier) => changes.received = vec![identifier],
        Change::Completed(identifier) => changes.completed = vec![identifier],
        Change::Released(identifier) => changes.released = vec![identifier],
        Change::Owed(offset) => changes.owed = vec![owed(Offset(offset))],
        Change::OwedDone(offset) => changes.owed_done = vec![Offset(offset)],
    }
    let mut value = Vec::new();
    changes.encode(&mut value);
    value
}

fn rested(log: &Log, party: u32, in_flight: bool) -> Vec<u8> {
    let known = log.delivery_state(Party(party)).map(|state| State::decode(&state).unwrap());
    let mut state = known.unwrap_or_default();
    if in_flight {
        let offset = state.mark;
        let flight = Flight { offset, qos: 1, phase: Phase::Sent, source: Source::Queue };
        state.flights.insert(9, flight);
    }
    let mut value = Vec::new();
    state.encode(&mut value);
    value
}

/// Everything that is derived.
fn derived(log: &Log) -> impl PartialEq + std::fmt::Debug {
    let states: Vec<_> = (0..20).map(|party| log.delivery_state(Party(party))).collect();
    let statistics = log.statistics();
    let count = |wanted| statistics.iter().find(|(name, _)| *name == wanted).unwrap().1;
    let counts = ["topics", "retained", "parties", "controls_in_force"].map(count);
    (states, log.retained(b"#", Offset(0), 100).0, counts, log.end_offset(), log.next_control_number())
}

fn run(seed: u64, steps: Vec<Step>) -> usize {
    let disk = FakeDisk::new(seed, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let (mut now, mut job, mut used) = (2_000, None::<Job>, 0);
    for step in steps.into_iter().chain([Step::Commit, Step::Crash]) {
        now += 1_000;
        let now = Timestamp(now);
        match step {
            Step::Append(topic, retain, empty) => {
                let payload = if empty { vec![] } else { vec![7; 900] };
                let stored = Stored { retain, qos: 2, ..message(TOPICS[topic], &payload) };
                log.append(&mut arrivals(&[stored]), &["#"], now).unwrap();
            }
            Step::Control(key, value) => {
                log.append_control(5, &[key], &vec![value; usize::from(value)], now).unwrap();
            }
            Step::Changes(party, change) => {
                log.append_control(0, &party.to_le_bytes(), &encoded(&change), now).unwrap();
            }
            Step::Rest(party, in_flight) => {
                let state = rested(&log, party, in_flight);
                log.append_control(0, &party.to_le_bytes(), &state, now).unwrap();
            }
            Step::Remove(party) => {
                log.append_control(0, &party.to_le_bytes(), b"", now).unwrap();
            }
            Step::Commit => drop(log.commit().unwrap()),
            Step::Begin if job.is_none() => log.begin_checkpoint(now).unwrap(),
            Step::Begin => {}
            Step::Piece(effort) => drop(log.checkpoint_piece(effort)),
            Step::Write => {
                job = job.or_else(|| log.checkpoint_job());
                if let Some(mut writing) = job.take() {
                    if writing.step() {
                        job = Some(writing);
                    } else {
                        log.finish(writing).unwrap();
                    }
                }
            }
            Step::Crash => {
                job = None;
                disk.crash();
                drop(log);
                let plain = without_checkpoints(&disk);
                let (opened, recovery) = open(&disk, options());
                assert_eq!(recovery.damaged, vec![]);
                used += usize::from(recovery.from_checkpoint);
                assert_eq!(format!("{:?}", derived(&opened)), format!("{:?}", derived(&open(&plain, options()).0)));
                log = opened;
            }
        }
    }
    used
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_taken_down_while_the_log_goes_on_says_what_the_log_says(
        seed: u64,
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        run(seed, steps);
    }
}

#[test]
fn a_checkpoint_of_steps_like_these_is_used() {
    let steps = |count| (0..count).map(|number| Step::Changes(number % 5 + 1, Change::Mark(u64::from(number))));
    let mut all: Vec<Step> = steps(5).collect();
    all.push(Step::Begin);
    for number in 0..30 {
        all.extend(steps(number % 3));
        all.push(Step::Piece(1));
    }
    all.extend([Step::Commit, Step::Write, Step::Write]);
    assert_eq!(run(1, all), 1);
}

#[test]
fn it_is_not_written_before_all_that_it_holds_is_durable() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    log.append(&mut arrivals(&[message("a", b"1")]), &[""; 0], Timestamp(5)).unwrap();
    log.begin_checkpoint(Timestamp(5)).unwrap();
    log.commit().unwrap();
    log.append_control(5, b"key", b"value", Timestamp(6)).unwrap();
    while !log.checkpoint_piece(1) {}
    assert!(log.checkpoint_job().is_none());
    log.commit().unwrap();
    assert!(log.checkpoint_job().is_some());
}

/// What a start finds in a checkpoint that a version wrote that took all of it down at one go.
#[test]
fn a_checkpoint_of_the_older_form_is_still_read() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let retained = Stored { retain: true, ..message("a", b"here") };
    log.append(&mut arrivals(&[retained]), &[""; 0], Timestamp(5)).unwrap();
    log.commit().unwrap();
    let epoch = u128::from_str_radix(&log.epoch().replace('-', ""), 16).unwrap();
    let mut bytes = b"HFCHECKP".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(epoch.to_le_bytes());
    for number in [1, 1, log.end_position().0, 9_000, 1] {
        bytes.extend(u64::to_le_bytes(number));
    }
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(b"a");
    for number in [1_u64, 40, 0, 1] {
        bytes.extend(number.to_le_bytes());
    }
    // A party with nothing but a mark, and a key in force.
    let mut state = Vec::new();
    State::new(Offset(7)).encode(&mut state);
    bytes.extend(9_u32.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend((state.len() as u32).to_le_bytes());
    bytes.extend(state);
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(crc32c_of(&bytes).to_le_bytes());
    let file = disk.create("checkpoint-0000000007", 0).unwrap();
    file.write_at(0, &bytes).unwrap();
    drop(log);
    let (log, recovery) = open(&disk, options());
    assert!(recovery.from_checkpoint);
    assert_eq!(log.marks(&[Party(9), Party(8)]), [Some(Offset(7)), None]);
}

/// The checksum by its definition, bit by bit.
fn crc32c_of(bytes: &[u8]) -> u32 {
    let mut checksum = u32::MAX;
    for byte in bytes {
        checksum ^= u32::from(*byte);
        for _ in 0..8 {
            checksum = if checksum & 1 == 1 { (checksum >> 1) ^ 0x82f6_3b78 } else { checksum >> 1 };
        }
    }
    !checksum
}

#[test]
fn the_page_of_the_format_shows_this_checkpoint() {
    let disk = FakeDisk::new(1, 1 << 30);
    let (mut log, _) = open(&disk, options());
    let retained = Stored { retain: true, ..message("a", b"21.5") };
    log.append(&mut arrivals(&[message("a", b"20.5"), retained]), &[""; 0], Timestamp(1_000_000)).unwrap();
    let mut state = Vec::new();
    State::new(Offset(2)).encode(&mut state);
    log.append_control(0, &5_u32.to_le_bytes(), &state, Timestamp(1_000_000)).unwrap();
    log.append_control(1, b"d", b"{}", Timestamp(1_000_000)).unwrap();
    log.checkpoint(Timestamp(1_000_000)).unwrap();
    let file = disk.open("checkpoint-0000000001", false).unwrap();
    let mut written = vec![0; file.size().unwrap() as usize];
    file.read_at(0, &mut written).unwrap();
    let page = include_str!("../../docs/formats/log.md");
    let block = page.split("```").nth(5).unwrap();
    let digits: Vec<u32> = block.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let shown: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    let lines: Vec<String> = written.chunks(16).map(|line| format!("{line:02x?}")).collect();
    assert_eq!(shown, written, "{}", lines.join("\n"));
}
