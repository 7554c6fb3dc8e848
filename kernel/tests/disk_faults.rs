//! The simulated disk has the faults that its page promises (docs/simulation.md), and no others.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

use holdfast_kernel::disk::fake::FakeDisk;
use holdfast_kernel::disk::Disk;
use std::collections::BTreeSet;

const SEEDS: u64 = 400;
const SIZE: usize = 16_384;

fn disk(seed: u64) -> FakeDisk {
    FakeDisk::new(seed, 1 << 30)
}

fn content(disk: &FakeDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, false).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A file of zeros that nothing can happen to any more.
fn zeros(disk: &FakeDisk, name: &str) {
    disk.create(name, SIZE as u64).unwrap().sync().unwrap();
    disk.sync_directory().unwrap();
}

/// Where `bytes` of zeros and ones change from one to the other.
fn tears(bytes: &[u8]) -> Vec<usize> {
    (1..bytes.len()).filter(|place| bytes[place - 1] != bytes[*place]).collect()
}

#[test]
fn what_was_synced_outlives_everything() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        let file = disk.create("a", 0).unwrap();
        file.write_at(0, &[7; 1_000]).unwrap();
        file.sync().unwrap();
        disk.sync_directory().unwrap();
        file.write_at(1_000, &[8; 5_000]).unwrap();
        for _ in 0..3 {
            disk.crash();
            assert_eq!(content(&disk, "a")[..1_000], [7; 1_000], "seed {seed}");
        }
    }
}

#[test]
fn a_write_is_torn_at_sectors_of_512_or_of_4096_bytes() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        zeros(&disk, "a");
        disk.open("a", true).unwrap().write_at(0, &[1; SIZE]).unwrap();
        disk.crash();
        let tears = tears(&content(&disk, "a"));
        assert!(tears.iter().all(|place| place % 512 == 0), "seed {seed}: {tears:?}");
        let fine = tears.iter().any(|place| place % 4_096 != 0);
        seen.insert((fine, tears.len().min(3)));
    }
    assert!(seen.contains(&(false, 0)) && seen.contains(&(true, 3)) && seen.contains(&(false, 3)), "{seen:?}");
}

#[test]
fn a_sector_that_was_synced_in_part_is_never_torn_within() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        zeros(&disk, "a");
        let file = disk.open("a", true).unwrap();
        file.write_at(0, &[1; 100]).unwrap();
        file.sync().unwrap();
        file.write_at(100, &[1; 100]).unwrap();
        file.write_at(200, &[1; 100]).unwrap();
        disk.crash();
        let end = content(&disk, "a").iter().rposition(|byte| *byte == 1).unwrap() + 1;
        assert!([100, 200, 300].contains(&end), "seed {seed}: {end}");
        assert_eq!(content(&disk, "a")[..end], vec![1; end]);
    }
}

#[test]
fn writes_arrive_in_any_order_across_files() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        zeros(&disk, "a");
        zeros(&disk, "b");
        disk.open("a", true).unwrap().write_at(0, b"1").unwrap();
        disk.open("b", true).unwrap().write_at(0, b"1").unwrap();
        disk.crash();
        seen.insert((content(&disk, "a")[0], content(&disk, "b")[0]));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn any_of_the_entries_are_lost_until_the_directory_is_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        for name in ["gone", "before", "over"] {
            zeros(&disk, name);
        }
        disk.create("new", 0).unwrap();
        disk.remove("gone").unwrap();
        disk.rename("before", "over").unwrap();
        let shown = ["new", "over"];
        assert_eq!(disk.list().unwrap(), shown);
        disk.crash();
        seen.insert(disk.list().unwrap());
        if seed < 10 {
            disk.crash();
            assert!(seen.contains(&disk.list().unwrap()), "what is there after a crash stays");
        }
    }
    assert_eq!(seen.len(), 8, "each is there or not, whatever became of the others: {seen:?}");
}

#[test]
fn entries_stay_once_the_directory_is_synced() {
    for seed in 0..SEEDS {
        let disk = disk(seed);
        zeros(&disk, "before");
        disk.create("new", 0).unwrap();
        disk.rename("before", "after").unwrap();
        disk.sync_directory().unwrap();
        disk.crash();
        assert_eq!(disk.list().unwrap(), ["after", "new"], "seed {seed}");
    }
}

#[test]
fn a_file_that_was_renamed_without_a_sync_may_be_empty_or_there_in_part() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        disk.create("a.partial", 0).unwrap().write_at(0, &[1; SIZE]).unwrap();
        disk.rename("a.partial", "a").unwrap();
        disk.sync_directory().unwrap();
        disk.crash();
        let bytes = content(&disk, "a");
        seen.insert((bytes.is_empty(), bytes == [1; SIZE]));
    }
    assert_eq!(seen.len(), 3, "empty, whole and in part: {seen:?}");
}

#[test]
fn what_a_failed_sync_left_unwritten_no_later_sync_writes() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk(seed);
        zeros(&disk, "a");
        let file = disk.open("a", true).unwrap();
        file.write_at(0, b"1").unwrap();
        disk.fail_next_sync();
        assert!(file.sync().is_err());
        assert_eq!(content(&disk, "a")[0], b'1', "it is shown as if nothing had happened");
        file.sync().unwrap();
        if seed % 2 == 0 {
            file.write_at(0, b"1").unwrap();
            file.sync().unwrap();
        }
        disk.crash();
        seen.insert((seed % 2 == 0, content(&disk, "a")[0]));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(false, 0), (false, b'1'), (true, b'1')]);
}

#[test]
fn the_same_seed_has_the_same_faults() {
    let left = |seed| {
        let disk = disk(seed);
        zeros(&disk, "a");
        disk.open("a", true).unwrap().write_at(300, &[1; 9_000]).unwrap();
        disk.rename("a", "b").unwrap();
        disk.crash();
        let names = disk.list().unwrap();
        (content(&disk, &names[0]), names)
    };
    assert!((0..20).all(|seed| left(seed) == left(seed)));
    assert!((0..20).any(|seed| left(seed) != left(seed + 1)));
}
