//! Files that have gone give back their bytes little by little, unless somebody still reads them
//! (docs/adr/0033-footers-wait.md).
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
use holdfast_kernel::disk::os::OsDisk;
use holdfast_kernel::disk::{Disk, DiskFile};
use holdfast_kernel::ids::{Offset, Timestamp};
use holdfast_kernel::store::{ColumnSet, Criteria, Limits, Log, LogReader};
use log_support::{arrivals, message, open, options, retain_seen, scan_all};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log of a few segments, the oldest of which is to go, and its file.
fn filled(disk: &Arc<dyn Disk>) -> (Log, Arc<dyn DiskFile>) {
    let (mut log, _) = Log::open(Arc::clone(disk), options(), Timestamp(1_000)).unwrap();
    for number in 0..40 {
        log.append(&mut arrivals(&[message("b/x", &[number; 1_000])]), &[""; 0], Timestamp(5)).unwrap();
        log.commit().unwrap();
    }
    let file = disk.open(&oldest(disk), true).unwrap();
    (log, file)
}

fn oldest(disk: &Arc<dyn Disk>) -> String {
    disk.list().unwrap().into_iter().filter(|name| name.starts_with("segment-")).min().unwrap()
}

/// Removes what is sealed; the sizes of a file, step by step.
fn sizes(log: &mut Log, file: &dyn DiskFile) -> Vec<u64> {
    let mut sizes = vec![file.size().unwrap()];
    retain_seen(log, (u64::MAX, 0), &[], 6, &mut || sizes.push(file.size().unwrap())).unwrap();
    sizes
}

fn goes_little_by_little(disk: Arc<dyn Disk>) {
    let (mut log, file) = filled(&disk);
    let sizes = sizes(&mut log, file.as_ref());
    let most = sizes[0].div_ceil(16);
    assert!(sizes.windows(2).all(|pair| pair[0] - pair[1] <= most), "{sizes:?}");
    assert!(sizes.last().unwrap() <= &most, "{sizes:?}");
}

fn is_left_to_whoever_reads_it(disk: Arc<dyn Disk>) {
    let (mut log, file) = filled(&disk);
    let mut reader = LogReader::open(Arc::clone(&disk)).unwrap();
    reader.refresh(None, true).unwrap();
    let sizes = sizes(&mut log, file.as_ref());
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    assert!(log.begin_offset() > Offset(0));
    let limits = Limits { from: Offset(0), to: Offset(40), rows: 100, bytes: 1 << 20 };
    let (columns, _) = reader.read(&Criteria::default(), ColumnSet::ALL, &limits).unwrap();
    assert_eq!(columns.offset.len(), 40 * 8);
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn os_disk(name: &str) -> Arc<dyn Disk> {
    let directory = directory(name);
    drop(std::fs::remove_dir_all(&directory));
    Arc::new(OsDisk::create(&directory).unwrap())
}

#[test]
fn a_file_that_has_gone_is_given_back_little_by_little() {
    goes_little_by_little(Arc::new(FakeDisk::new(1, 1 << 30)));
    goes_little_by_little(os_disk("nameless-goes"));
}

#[test]
fn a_file_that_somebody_reads_stays_whole_for_them() {
    is_left_to_whoever_reads_it(Arc::new(FakeDisk::new(1, 1 << 30)));
    is_left_to_whoever_reads_it(os_disk("nameless-stays"));
}

#[test]
fn a_file_whose_memory_is_being_given_back_goes_little_by_little_too() {
    let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new(1, 1 << 30));
    let (mut log, file) = filled(&disk);
    let mut release = log.release_job(0).unwrap();
    let sizes = sizes(&mut log, file.as_ref());
    assert!(sizes.windows(2).all(|pair| pair[0] - pair[1] <= sizes[0].div_ceil(16)), "{sizes:?}");
    assert!(sizes.last().unwrap() <= &sizes[0].div_ceil(16), "{sizes:?}");
    assert!(!release.step(), "there is nothing to give back any more");
    log.finish(release).unwrap();
}

#[test]
fn a_file_that_goes_is_not_opened_any_more() {
    let disk = os_disk("nameless-opened");
    let (_log, _) = filled(&disk);
    let name = oldest(&disk);
    let file = std::fs::File::open(directory("nameless-opened").join(&name)).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert!(disk.open(&name, false).is_err());
}

#[test]
fn a_file_that_a_backup_made_of_links_has_stays_whole() {
    let disk = os_disk("nameless-linked");
    let (mut log, file) = filled(&disk);
    let (kept, link) = (directory("nameless-linked").join(oldest(&disk)), directory("nameless-link"));
    drop(std::fs::remove_file(&link));
    std::fs::hard_link(&kept, &link).unwrap();
    let before = std::fs::read(&link).unwrap();
    sizes(&mut log, file.as_ref());
    assert!(log.begin_offset() > Offset(0) && !kept.exists());
    assert_eq!(std::fs::read(&link).unwrap(), before);
}

#[test]
fn a_file_that_a_power_cut_brings_back_is_whole() {
    for seed in 0..16 {
        for cut in 1..=40 {
            let disk = FakeDisk::new(seed, 1 << 30);
            let (mut log, file) = filled(&(Arc::new(disk.clone()) as Arc<dyn Disk>));
            drop(file);
            let mut steps = 0;
            // What comes behind the cut fails, for open files are dead.
            drop(retain_seen(&mut log, (u64::MAX, 0), &[], 6, &mut || {
                steps += 1;
                if steps == cut {
                    disk.crash();
                }
            }));
            drop(log);
            let (mut log, recovery) = open(&disk, options());
            assert!(recovery.damaged.is_empty(), "seed {seed}, step {cut}: {:?}", recovery.damaged);
            let begin = log.begin_offset().0;
            assert_eq!(scan_all(&mut log, "b/x", begin, 100).len() as u64, 40 - begin, "seed {seed}, step {cut}");
        }
    }
}
