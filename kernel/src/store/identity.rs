//! Whose log it is: the file `format`, with the log's epoch and the version of its files.

use super::header::{self, SegmentKind, FORMAT_VERSION};
use crate::disk::Disk;
use crate::error::{Error, Result};

/// The file's name.
const FORMAT_FILE: &str = "format";

/// The log's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Made when the log was created; part of every checkpoint outside.
    pub epoch: u128,
}

impl Identity {
    /// A new identity from a seed that the caller drew.
    pub fn from_seed(seed: u64) -> Identity {
        let half = |number: u64| u128::from(mix(seed.wrapping_add(number)));
        Identity { epoch: (half(1) << 64) | half(2) }
    }

    /// The epoch in the usual notation.
    pub fn epoch_text(&self) -> String {
        let digits = format!("{:032x}", self.epoch);
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default().to_owned();
        [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
    }

    /// What the checksums of records are salted with.
    pub fn salt(&self) -> u32 {
        crate::checksum::of(&self.epoch.to_le_bytes())
    }

    fn text(&self) -> String {
        let text = format!("holdfast-log {FORMAT_VERSION}\nepoch {}\n", self.epoch_text());
        format!("{text}checksum {:08x}\n", crate::checksum::of(text.as_bytes()))
    }
}

/// The identity of the log on `disk`: from its file or, where that is damaged, from its segments; `None` if there is
/// no log. A log of a newer version is an error.
pub fn read(disk: &dyn Disk) -> Result<Option<Identity>> {
    let names = disk.list()?;
    if names.iter().any(|name| name == FORMAT_FILE) {
        let bytes = read_all(disk, FORMAT_FILE, 4_096)?;
        let text = String::from_utf8_lossy(&bytes);
        let version = text.lines().next().and_then(|line| line.strip_prefix("holdfast-log ")).map(str::parse::<u32>);
        if let Some(Ok(version)) = version.filter(|version| matches!(version, Ok(version) if *version > FORMAT_VERSION))
        {
            return Err(Error::NewerFormat { file: FORMAT_FILE.to_owned(), version });
        }
        if let Some(identity) = parse(&text) {
            return Ok(Some(identity));
        }
    }
    for name in names.iter().filter(|name| matches!(header::parse_segment_name(name), Some((SegmentKind::Log, _)))) {
        if let Some(header) = header::decode(&read_all(disk, name, 96)?, name)? {
            return Ok(Some(Identity { epoch: header.epoch }));
        }
    }
    Ok(None)
}

/// Writes the identity durably.
pub fn write(disk: &dyn Disk, identity: &Identity) -> Result<()> {
    write_whole(disk, FORMAT_FILE, identity.text().as_bytes())
}

/// Writes a small file so that after a crash it is there wholly or not at all.
pub fn write_whole(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Result<()> {
    let partial = format!("{name}.partial");
    if disk.list()?.contains(&partial) {
        disk.remove(&partial)?;
    }
    let file = disk.create(&partial, 0)?;
    file.write_at(0, bytes)?;
    file.sync()?;
    disk.rename(&partial, name)?;
    disk.sync_directory()
}

/// The first `limit` bytes of a file.
pub fn read_all(disk: &dyn Disk, name: &str, limit: u64) -> Result<Vec<u8>> {
    let file = disk.open(name, false)?;
    let size = file.size()?.min(limit);
    let mut bytes = vec![0; super::encoding::index64(size)];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn parse(text: &str) -> Option<Identity> {
    let (body, checksum) = text.split_at_checked(text.rfind("checksum ")?)?;
    let stored = u32::from_str_radix(checksum.strip_prefix("checksum ")?.trim_end(), 16).ok()?;
    if stored != crate::checksum::of(body.as_bytes()) {
        return None;
    }
    let epoch = body.lines().find_map(|line| line.strip_prefix("epoch "))?.replace('-', "");
    Some(Identity { epoch: u128::from_str_radix(&epoch, 16).ok()? })
}

/// Spreads a seed over 64 bits (the finisher of splitmix64).
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
