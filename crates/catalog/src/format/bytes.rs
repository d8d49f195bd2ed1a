//! Numbers and prices in bytes.

use windfall_core::NanoUsd;

/// Appends a number.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value as u8) | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a price; none as zero.
pub(crate) fn put_price(bytes: &mut Vec<u8>, price: Option<NanoUsd>) {
    let nano = price.map_or(0, |price| price.0.max(0) as u64);
    let coded = match nano {
        0 => 0,
        nano if nano % 10_000 == 0 => nano / 10_000 * 4,
        nano if nano % 1_000 == 0 => nano / 1_000 * 4 + 1,
        nano => nano * 4 + 2,
    };
    put_number(bytes, coded);
}

/// Reads forward; every read may find that the bytes have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    pub fn new(bytes: &'b [u8]) -> Cursor<'b> {
        Cursor { bytes, at: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    pub fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub fn fixed(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// A quantity stored plus one; none is zero.
    pub fn optional(&mut self) -> Option<Option<u32>> {
        let stored = self.small()?;
        Some(stored.checked_sub(1))
    }

    /// A price; the inner none means that there is none.
    #[inline]
    pub fn price(&mut self) -> Option<Option<NanoUsd>> {
        let coded = self.number()?;
        let mantissa = coded >> 2;
        let nano = match coded & 3 {
            0 => mantissa.checked_mul(10_000)?,
            1 => mantissa.checked_mul(1_000)?,
            2 => mantissa,
            _ => return None,
        };
        let nano = i64::try_from(nano).ok()?;
        Some((nano > 0).then_some(NanoUsd(nano)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_come_back_exactly_and_small() {
        for nano in [1, 999, 1_000, 10_000, 706_830_000, 88_489_999_903, 29_362_176_000_000] {
            let mut bytes = Vec::new();
            put_price(&mut bytes, Some(NanoUsd(nano)));
            assert_eq!(Cursor::new(&bytes).price(), Some(Some(NanoUsd(nano))));
        }
        let mut bytes = Vec::new();
        put_price(&mut bytes, NanoUsd::from_dollars(3.06).into());
        assert_eq!(bytes.len(), 3);
        let mut none = Vec::new();
        put_price(&mut none, None);
        assert_eq!(Cursor::new(&none).price(), Some(None));
    }

    #[test]
    fn bytes_that_end_early_or_never_end_are_no_number() {
        assert_eq!(Cursor::new(&[0x80]).number(), None);
        assert_eq!(Cursor::new(&[0xff; 12]).number(), None);
        assert_eq!(Cursor::new(&[0b11]).price(), None);
    }
}
