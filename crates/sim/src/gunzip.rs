//! Unpacks gzip (RFC 1952 around RFC 1951): recorded markets come packed, and this is all that is needed of it.

/// The bytes in a gzip file.
pub(crate) fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let cut = || "the packed file is cut short".to_owned();
    let flags = *bytes.get(3).ok_or_else(cut)?;
    let mut at = 10;
    if flags & 4 != 0 {
        let extra = bytes.get(at..at + 2).ok_or_else(cut)?;
        at += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    }
    for text in [8, 16] {
        if flags & text != 0 {
            at += bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0)).ok_or_else(cut)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    let mut out = Vec::new();
    let mut bits = Bits { bytes: bytes.get(at..).ok_or_else(cut)?, at: 0, held: 0, count: 0 };
    inflate(&mut bits, &mut out)?;
    Ok(out)
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Result<u32, String> {
        while self.count < count {
            let byte = *self.bytes.get(self.at).ok_or("the packed file is cut short")?;
            self.held |= u64::from(byte) << self.count;
            self.at += 1;
            self.count += 8;
        }
        let value = self.held & ((1 << count) - 1);
        self.held >>= count;
        self.count -= count;
        Ok(value as u32)
    }

    fn align(&mut self) {
        self.held >>= self.count % 8;
        self.count -= self.count % 8;
    }
}

/// A prefix code: how many symbols have each length, and the symbols in order.
struct Code {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn new(lengths: &[u8]) -> Code {
        let mut counts = [0; 16];
        for length in lengths.iter().filter(|length| **length > 0) {
            counts[usize::from(*length)] += 1;
        }
        let mut symbols = Vec::new();
        for length in 1..16 {
            symbols.extend(lengths.iter().enumerate().filter(|(_, l)| **l == length).map(|(symbol, _)| symbol as u16));
        }
        Code { counts, symbols }
    }

    fn read(&self, bits: &mut Bits) -> Result<usize, String> {
        let (mut code, mut first, mut index) = (0_i32, 0_i32, 0_i32);
        for count in &self.counts[1..] {
            code |= bits.take(1)? as i32;
            let count = i32::from(*count);
            if code - count < first {
                let symbol = usize::try_from(index + code - first).ok().and_then(|at| self.symbols.get(at));
                return symbol.map(|symbol| usize::from(*symbol)).ok_or_else(|| "a broken code".to_owned());
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err("a broken code".to_owned())
    }
}

#[rustfmt::skip]
const LENGTHS: [(u16, u8); 29] = [
    (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (11, 1), (13, 1), (15, 1), (17, 1), (19, 2),
    (23, 2), (27, 2), (31, 2), (35, 3), (43, 3), (51, 3), (59, 3), (67, 4), (83, 4), (99, 4), (115, 4), (131, 5),
    (163, 5), (195, 5), (227, 5), (258, 0),
];
#[rustfmt::skip]
const DISTANCES: [(u16, u8); 30] = [
    (1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (7, 1), (9, 2), (13, 2), (17, 3), (25, 3), (33, 4), (49, 4), (65, 5),
    (97, 5), (129, 6), (193, 6), (257, 7), (385, 7), (513, 8), (769, 8), (1025, 9), (1537, 9), (2049, 10), (3073, 10),
    (4097, 11), (6145, 11), (8193, 12), (12289, 12), (16385, 13), (24577, 13),
];
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

fn inflate(bits: &mut Bits, out: &mut Vec<u8>) -> Result<(), String> {
    loop {
        let last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => {
                bits.align();
                let length = bits.take(16)?;
                bits.take(16)?;
                for _ in 0..length {
                    out.push(bits.take(8)? as u8);
                }
            }
            1 => {
                let mut lengths = [8_u8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                block(bits, out, &Code::new(&lengths), &Code::new(&[5; 30]))?;
            }
            2 => {
                let (literals, distances) = codes(bits)?;
                block(bits, out, &literals, &distances)?;
            }
            _ => return Err("a broken block".to_owned()),
        }
        if last {
            return Ok(());
        }
    }
}

fn codes(bits: &mut Bits) -> Result<(Code, Code), String> {
    let literals = bits.take(5)? as usize + 257;
    let distances = bits.take(5)? as usize + 1;
    let given = bits.take(4)? as usize + 4;
    let mut lengths = [0_u8; 19];
    for place in ORDER.iter().take(given) {
        lengths[*place] = bits.take(3)? as u8;
    }
    let code = Code::new(&lengths);
    let mut lengths: Vec<u8> = Vec::new();
    while lengths.len() < literals + distances {
        let (value, times) = match code.read(bits)? {
            16 => (*lengths.last().ok_or("a broken code")?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length as u8, 1),
        };
        lengths.extend(std::iter::repeat_n(value, times as usize));
    }
    let rest = lengths.get(literals..literals + distances).ok_or("a broken code")?;
    Ok((Code::new(&lengths[..literals]), Code::new(rest)))
}

fn block(bits: &mut Bits, out: &mut Vec<u8>, literals: &Code, distances: &Code) -> Result<(), String> {
    loop {
        let symbol = literals.read(bits)?;
        match symbol {
            0..=255 => out.push(symbol as u8),
            256 => return Ok(()),
            _ => {
                let (base, extra) = *LENGTHS.get(symbol - 257).ok_or("a broken length")?;
                let length = usize::from(base) + bits.take(u32::from(extra))? as usize;
                let (base, extra) = *DISTANCES.get(distances.read(bits)?).ok_or("a broken distance")?;
                let distance = usize::from(base) + bits.take(u32::from(extra))? as usize;
                let from = out.len().checked_sub(distance).ok_or("a broken distance")?;
                for place in from..from + length {
                    out.push(out[place]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::gunzip;

    #[test]
    fn packed_bytes_come_back() {
        // `printf 'spot spot spot spot on-demand' | gzip -9n`
        let packed = [
            31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 46, 200, 47, 81, 40, 70, 37, 242, 243, 116, 83, 82, 115, 19, 243, 82,
            0, 9, 154, 0, 178, 29, 0, 0, 0,
        ];
        assert_eq!(gunzip(&packed).as_deref(), Ok(b"spot spot spot spot on-demand".as_slice()));
        assert!(gunzip(&packed[..20]).is_err());
        assert!(gunzip(&[31, 139]).is_err());
    }
}
