//! Finds the members of a zip archive, which is what torch files and npz files are. A member that is stored as it
//! is, as torch writes them, is read from the file where it lies; one that is compressed is held in memory.

use super::tensor::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The comment at the end of an archive is at most this long, and its last record with it.
const MOST_TAIL: u64 = 66 << 10;
const MOST_DIRECTORY: u64 = 256 << 20;
/// Compressed members of one archive are held in memory.
const MOST_INFLATED: u64 = 1 << 30;

/// The members by name; none when it is no archive that can be read here.
pub fn members(file: &Arc<File>) -> Option<BTreeMap<String, Bytes>> {
    let size = file.metadata().ok()?.len();
    let (mut at, end) = directory(file, size)?;
    let directory = read(file, at, end.checked_sub(at).filter(|length| *length <= MOST_DIRECTORY)?)?;
    let mut found = BTreeMap::new();
    let base = at;
    let mut room = MOST_INFLATED;
    while at < end {
        let entry = directory.get(usize::try_from(at - base).ok()?..)?;
        if number(entry, 0, 4)? != 0x0201_4b50 {
            break;
        }
        let (name_length, extra_length, comment) =
            (number(entry, 28, 2)? as usize, number(entry, 30, 2)? as usize, number(entry, 32, 2)?);
        let name = String::from_utf8_lossy(entry.get(46..46 + name_length)?).into_owned();
        let extra = entry.get(46 + name_length..46 + name_length + extra_length)?;
        let mut wide = wide_numbers(extra).into_iter();
        let mut or_wide = |value: u64| if value == 0xffff_ffff { wide.next() } else { Some(value) };
        let plain = or_wide(number(entry, 24, 4)?)?;
        let packed = or_wide(number(entry, 20, 4)?)?;
        let header = or_wide(number(entry, 42, 4)?)?;
        let local = read(file, header, 30)?;
        let data = header.checked_add(30 + number(&local, 26, 2)? + number(&local, 28, 2)?)?;
        let bytes = match number(entry, 10, 2)? {
            0 if packed == plain && data.checked_add(plain)? <= size => Bytes::in_file(file, data, plain),
            8 if plain <= room && packed <= size => {
                room -= plain;
                Bytes::held(inflate(&read(file, data, packed)?, plain)?)
            }
            _ => return None,
        };
        found.insert(name, bytes);
        at += 46 + name_length as u64 + extra_length as u64 + comment;
    }
    Some(found)
}

/// Where the list of members begins and ends.
fn directory(file: &File, size: u64) -> Option<(u64, u64)> {
    let from = size.saturating_sub(MOST_TAIL);
    let tail = read(file, from, size - from)?;
    let last = tail.windows(4).rposition(|four| four == b"PK\x05\x06")?;
    let record = &tail[last..];
    let (mut length, mut start) = (number(record, 12, 4)?, number(record, 16, 4)?);
    // Archives above 4 GiB have a wider record before this one.
    if (length == 0xffff_ffff || start == 0xffff_ffff)
        && let Some(locator) =
            last.checked_sub(20).and_then(|at| tail.get(at..)).filter(|l| l.starts_with(b"PK\x06\x07"))
    {
        let record = read(file, number(locator, 8, 8)?, 56)?;
        (length, start) = (number(&record, 40, 8)?, number(&record, 48, 8)?);
    }
    let end = start.checked_add(length)?;
    (end <= size).then_some((start, end))
}

/// The 64-bit sizes and the offset of an entry, where they did not fit into 32 bits.
fn wide_numbers(mut extra: &[u8]) -> Vec<u64> {
    while let (Some(kind), Some(length)) = (number(extra, 0, 2), number(extra, 2, 2)) {
        let body = extra.get(4..4 + length as usize).unwrap_or_default();
        if kind == 1 {
            return body.chunks_exact(8).filter_map(|eight| number(eight, 0, 8)).collect();
        }
        extra = extra.get(4 + length as usize..).unwrap_or_default();
    }
    Vec::new()
}

fn inflate(packed: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    flate2::read::DeflateDecoder::new(packed).take(size + 1).read_to_end(&mut plain).ok()?;
    (plain.len() as u64 == size).then_some(plain)
}

fn read(file: &File, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// A number of so many bytes, the lowest first.
pub fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
}
