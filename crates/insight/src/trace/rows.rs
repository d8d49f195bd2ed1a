//! How spans are packed into rows of numbers.

use super::names::NameId;
use crate::spool::{Row, ordered, unordered};

/// A span is work of the accelerator by our rules.
pub const OURS: u8 = 1;
/// A span is work of the accelerator by HTA's rules.
pub const HTAS: u8 = 2;
/// HTA looks at its idle time by stream.
pub const HTA_IDLE: u8 = 4;
/// It has a correlation.
pub const CORRELATED: u8 = 8;

/// A span on an accelerator with the call that launched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    pub start_ns: i64,
    pub end_ns: i64,
    pub stream: u16,
    pub flags: u8,
    /// Estimated occupancy in percent; 255 where nobody says.
    pub occupancy: u8,
    pub name: NameId,
    pub launch: Option<Launch>,
}

/// A call on the host that put work into a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub start_ns: i64,
    pub duration_ns: u32,
    pub thread: u16,
}

impl DeviceRow {
    /// Numbers in a row.
    pub const WIDTH: usize = 5;

    /// As a row of numbers.
    pub fn pack(&self) -> Row<{ Self::WIDTH }> {
        let [launch, how] = pack_launch(self.launch);
        let what = u64::from(self.stream) << 48
            | u64::from(self.flags) << 40
            | u64::from(self.occupancy) << 32
            | u64::from(self.name.0);
        [ordered(self.start_ns), ordered(self.end_ns), what, launch, how]
    }

    /// Out of a row of numbers.
    pub fn unpack(row: Row<{ Self::WIDTH }>) -> DeviceRow {
        DeviceRow {
            start_ns: unordered(row[0]),
            end_ns: unordered(row[1]),
            stream: (row[2] >> 48) as u16,
            flags: (row[2] >> 40) as u8,
            occupancy: (row[2] >> 32) as u8,
            name: NameId(row[2] as u32),
            launch: unpack_launch(row[3], row[4]),
        }
    }

    /// How long it went on.
    pub fn duration_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }
}

fn pack_launch(launch: Option<Launch>) -> [u64; 2] {
    match launch {
        None => [0, 0],
        Some(launch) => {
            [ordered(launch.start_ns), 1 << 63 | u64::from(launch.thread) << 32 | u64::from(launch.duration_ns)]
        }
    }
}

fn unpack_launch(start: u64, how: u64) -> Option<Launch> {
    (how >> 63 == 1).then(|| Launch { start_ns: unordered(start), duration_ns: how as u32, thread: (how >> 32) as u16 })
}

/// Half of a pair that is joined by its correlation: launches come before what they launched.
#[derive(Clone, Copy, Debug)]
pub enum PairRow {
    Launch { correlation: i64, launch: Launch },
    Device { correlation: i64, span: DeviceRow },
}

impl PairRow {
    /// Numbers in a row.
    pub const WIDTH: usize = 5;

    /// As a row of numbers.
    pub fn pack(&self) -> Row<{ Self::WIDTH }> {
        match self {
            PairRow::Launch { correlation, launch } => {
                let [start, how] = pack_launch(Some(*launch));
                [ordered(*correlation), 0, start, how, 0]
            }
            PairRow::Device { correlation, span } => {
                let [start, end, what, ..] = span.pack();
                [ordered(*correlation), 1, start, end, what]
            }
        }
    }

    /// Out of a row of numbers.
    pub fn unpack(row: Row<{ Self::WIDTH }>) -> PairRow {
        let correlation = unordered(row[0]);
        match (row[1], unpack_launch(row[2], row[3])) {
            (0, Some(launch)) => PairRow::Launch { correlation, launch },
            _ => PairRow::Device { correlation, span: DeviceRow::unpack([row[2], row[3], row[4], 0, 0]) },
        }
    }
}

/// What a host thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// An operator or a call that does not wait.
    Work,
    /// A call that returns when the accelerator is done.
    Waiting,
    /// Fetching the next batch.
    Loading,
    /// A call that was held up: the queue was full, or the copy was not from pinned memory.
    HeldUp,
}

/// A span on a host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRow {
    pub start_ns: i64,
    pub end_ns: i64,
    pub thread: u16,
    pub doing: Doing,
}

impl HostRow {
    /// Numbers in a row.
    pub const WIDTH: usize = 3;

    /// As a row of numbers.
    pub fn pack(&self) -> Row<{ Self::WIDTH }> {
        [ordered(self.start_ns), ordered(self.end_ns), u64::from(self.thread) << 8 | self.doing as u64]
    }

    /// Out of a row of numbers.
    pub fn unpack(row: Row<{ Self::WIDTH }>) -> HostRow {
        let doing = match row[2] & 0xff {
            1 => Doing::Waiting,
            2 => Doing::Loading,
            3 => Doing::HeldUp,
            _ => Doing::Work,
        };
        HostRow { start_ns: unordered(row[0]), end_ns: unordered(row[1]), thread: (row[2] >> 8) as u16, doing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_again() {
        let launch = Launch { start_ns: -3, duration_ns: 7, thread: 65_535 };
        let span = DeviceRow {
            start_ns: 5,
            end_ns: i64::MAX,
            stream: 65_535,
            flags: OURS | HTAS,
            occupancy: 255,
            name: NameId(u32::MAX),
            launch: Some(launch),
        };
        assert_eq!(DeviceRow::unpack(span.pack()), span);
        let host = HostRow { start_ns: -1, end_ns: 4, thread: 9, doing: Doing::Loading };
        assert_eq!(HostRow::unpack(host.pack()), host);
        let pair = PairRow::unpack(PairRow::Device { correlation: 4, span }.pack());
        assert!(matches!(pair, PairRow::Device { correlation: 4, span: back } if back.name == span.name));
        let pair = PairRow::unpack(PairRow::Launch { correlation: 4, launch }.pack());
        assert!(matches!(pair, PairRow::Launch { correlation: 4, launch: back } if back == launch));
    }
}
