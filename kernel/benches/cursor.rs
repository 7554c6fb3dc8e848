//! Nanoseconds per delivery and acknowledgement, with a window of deliveries in flight.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, missing_docs)]

use holdfast_kernel::delivery::cursor::{Cursor, Entry};
use holdfast_kernel::ids::{KeySlot, Offset, Receiver, Timestamp};
use holdfast_kernel::ranges::RangeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

const WINDOW: u64 = 1_000;
const ROUNDS: u64 = 500;
const REPETITIONS: u32 = 7;

fn entry(offset: u64) -> Entry {
    Entry { offset: Offset(offset), count: 1, number: offset, key_slot: KeySlot(0), not_before: Timestamp(0) }
}

/// Runs `rounds` of a window delivered, then acknowledged in the order that `order` gives; gaps lie between.
fn windows(order: &[u64]) -> (Duration, u64) {
    let mut cursor = Cursor::new(Offset(0));
    let began = Instant::now();
    for round in 0..ROUNDS {
        let base = round * WINDOW * 3;
        for index in 0..WINDOW {
            cursor.deliver(entry(base + index * 3), Receiver(1));
        }
        for index in order {
            black_box(cursor.acknowledge(Offset(base + index * 3)));
        }
    }
    assert_eq!(cursor.mark(), cursor.read());
    (began.elapsed(), ROUNDS * WINDOW)
}

/// Prints the best of several runs: whatever else the machine does only makes them slower. `run` returns the time
/// that it measured and how many operations that was.
fn report(name: &str, run: impl Fn() -> (Duration, u64)) {
    let best = (0..REPETITIONS)
        .map(|_| run())
        .map(|(took, count)| took.as_nanos() as f64 / count as f64)
        .fold(f64::MAX, f64::min);
    println!("{name:58} {best:8.1} ns");
}

/// A window that slides: one delivered, the oldest acknowledged, a thousand always in flight.
fn sliding() -> (Duration, u64) {
    let mut cursor = Cursor::new(Offset(0));
    for index in 0..WINDOW {
        cursor.deliver(entry(index * 3), Receiver(1));
    }
    let began = Instant::now();
    for index in WINDOW..WINDOW * ROUNDS {
        cursor.deliver(entry(index * 3), Receiver(1));
        black_box(cursor.acknowledge(Offset((index - WINDOW) * 3)));
    }
    (began.elapsed(), WINDOW * (ROUNDS - 1))
}

/// Two holders of different speed: acknowledgements alternate between the oldest and the middle of the window.
fn two_holders() -> (Duration, u64) {
    let mut cursor = Cursor::new(Offset(0));
    let began = Instant::now();
    let mut slow = 0;
    for index in 0..WINDOW * ROUNDS {
        cursor.deliver(entry(index), Receiver((index % 2) as u32));
        if index % 2 == 0 && index >= 100 {
            black_box(cursor.acknowledge(Offset(index - 100)));
        } else if index >= WINDOW {
            black_box(cursor.acknowledge(Offset(slow * 2 + 1)));
            slow += 1;
        }
    }
    (began.elapsed(), WINDOW * ROUNDS)
}

/// One entry is never acknowledged while a million after it are.
fn stuck() -> (Duration, u64) {
    let mut cursor = Cursor::new(Offset(0));
    cursor.deliver(entry(0), Receiver(1));
    let began = Instant::now();
    for index in 1..1_000_000 {
        cursor.deliver(entry(index), Receiver(2));
        black_box(cursor.acknowledge(Offset(index)));
    }
    assert_eq!(cursor.acknowledged().len(), 1);
    (began.elapsed(), 1_000_000)
}

fn redelivery() -> (Duration, u64) {
    let mut cursor = Cursor::new(Offset(0));
    let began = Instant::now();
    for round in 0..ROUNDS / 4 {
        let base = round * WINDOW;
        for index in 0..WINDOW {
            cursor.deliver(entry(base + index), Receiver(1));
        }
        cursor.release(Receiver(1));
        while let Some(entry) = cursor.next_redelivery(Timestamp(1), |_| true) {
            cursor.redeliver(entry.offset, Receiver(2));
        }
        for index in 0..WINDOW {
            cursor.acknowledge(Offset(base + index));
        }
    }
    (began.elapsed(), ROUNDS / 4 * WINDOW)
}

fn gaps() -> (Duration, u64) {
    let began = Instant::now();
    let mut set = RangeSet::new();
    for index in 0..200_000u64 {
        set.insert(index.wrapping_mul(7_919) % 200_000 * 2, index.wrapping_mul(7_919) % 200_000 * 2 + 1);
    }
    assert_eq!(set.len(), 200_000);
    (began.elapsed(), 200_000)
}

fn main() {
    let in_order: Vec<u64> = (0..WINDOW).collect();
    let reversed: Vec<u64> = (0..WINDOW).rev().collect();
    let scattered: Vec<u64> = (0..WINDOW).map(|index| index * 617 % WINDOW).collect();
    report("deliver + acknowledge, in order, 1 000 in flight", sliding);
    report("deliver 1 000, acknowledge in order", || windows(&in_order));
    report("deliver 1 000, acknowledge in reverse", || windows(&reversed));
    report("deliver 1 000, acknowledge scattered", || windows(&scattered));
    report("deliver + acknowledge, two holders 450 entries apart", two_holders);
    report("deliver + acknowledge behind one that is stuck", stuck);
    report("deliver, release, redeliver, acknowledge cumulatively", redelivery);
    report("RangeSet: insert into up to 200 000 ranges", gaps);
}
