//! Processor time and memory of the generator and of the broker beside it, read at the borders of the measured part.

use rustix::time::{clock_gettime, ClockId};
use std::fs;

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time, all threads, in seconds.
    pub processor_s: f64,
    /// Resident memory now.
    pub resident_kib: u64,
}

/// The processor time of this process, in seconds.
pub fn own_processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What another process has used; nothing if it is not there.
pub fn of_process(process: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    Some(Usage { processor_s: processor_s(&stat)?, resident_kib: resident_kib(&status)? })
}

/// Fields 14 and 15 of proc(5)'s stat. The name before them is in parentheses and may hold anything.
fn processor_s(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat = "7 (a) b) (c) S 1 1 1 0 -1 4194560 1 1 0 0 250 50 0 0 20 0 1 0 1";
        assert_eq!(processor_s(stat), Some(300.0 / rustix::param::clock_ticks_per_second() as f64));
    }

    #[test]
    fn this_process_is_there() {
        let usage = of_process(std::process::id()).unwrap();
        assert!(usage.resident_kib > 0);
    }
}
