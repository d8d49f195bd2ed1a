//! Pieces of JSON out of a buffer that may end in the middle of one. Nothing is copied or checked beyond what is needed
//! to find where a value ends: profilers write control characters and broken UTF-8 into strings, and a reader that
//! insists on neither reads them all.

/// Why a piece could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The buffer ends within it.
    Incomplete,
    /// This is not JSON.
    Broken,
}

/// A place in a buffer.
#[derive(Clone, Copy)]
pub struct Cursor<'b> {
    pub bytes: &'b [u8],
    pub at: usize,
}

/// The deepest nesting that is followed.
const DEEPEST: u32 = 512;

impl<'b> Cursor<'b> {
    /// At the beginning of a buffer.
    pub fn new(bytes: &'b [u8]) -> Cursor<'b> {
        Cursor { bytes, at: 0 }
    }

    /// The next byte that is not white space, left where it is.
    #[inline]
    pub fn peek(&mut self) -> Result<u8, Stop> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Ok(*byte);
            }
            self.at += 1;
        }
        Err(Stop::Incomplete)
    }

    /// Takes one byte that must be there.
    #[inline]
    pub fn take(&mut self, wanted: u8) -> Result<(), Stop> {
        if self.peek()? != wanted {
            return Err(Stop::Broken);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes a string and returns it as it is written, without quotes.
    #[inline]
    pub fn string(&mut self) -> Result<&'b [u8], Stop> {
        self.take(b'"')?;
        let from = self.at;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'"', b'\\', rest) else { return Err(Stop::Incomplete) };
            self.at += found;
            if self.bytes[self.at] == b'"' {
                let text = &self.bytes[from..self.at];
                self.at += 1;
                return Ok(text);
            }
            self.at += 2;
        }
    }

    /// Takes any value and returns it as it is written; strings keep their quotes.
    #[inline]
    pub fn value(&mut self) -> Result<&'b [u8], Stop> {
        let first = self.peek()?;
        let from = self.at;
        match first {
            b'"' => {
                self.string()?;
            }
            b'{' | b'[' => self.nested()?,
            b'}' | b']' | b',' | b':' => return Err(Stop::Broken),
            _ => loop {
                match self.bytes.get(self.at) {
                    None => return Err(Stop::Incomplete),
                    Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') => break,
                    Some(b'"' | b'{' | b'[' | b':') => return Err(Stop::Broken),
                    Some(_) => self.at += 1,
                }
            },
        }
        Ok(&self.bytes[from..self.at])
    }

    fn nested(&mut self) -> Result<(), Stop> {
        let mut depth = 0u32;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(Stop::Incomplete),
                Some(b'"') => {
                    self.string()?;
                    continue;
                }
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
            if depth > DEEPEST {
                return Err(Stop::Broken);
            }
        }
    }

    /// Walks an object: `field` is told each key and takes its value.
    #[inline]
    pub fn object(&mut self, mut field: impl FnMut(&'b [u8], &mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        self.take(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.take(b':')?;
            field(key, self)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Stop::Broken),
            }
            // A comma before the end is a common slip of writers.
            if self.peek()? == b'}' {
                self.at += 1;
                return Ok(());
            }
        }
    }

    /// Walks a list: `item` takes each value.
    pub fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        self.take(b'[')?;
        loop {
            match self.peek()? {
                b']' => {
                    self.at += 1;
                    return Ok(());
                }
                b',' => self.at += 1,
                _ => item(self)?,
            }
        }
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}

/// A whole number, quoted or not; none where it is something else.
#[inline]
pub fn integer(value: &[u8]) -> Option<i64> {
    let text = unquoted(value);
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    let mut number: i64 = 0;
    for (place, byte) in digits.iter().enumerate() {
        if !byte.is_ascii_digit() {
            // `7.0` is seven; `0x7f` and `1e3` are not read as whole numbers.
            let zeros = *byte == b'.' && place > 0 && digits[place + 1..].iter().all(|byte| *byte == b'0');
            return zeros.then_some(if negative { -number } else { number });
        }
        number = number.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
    }
    (!digits.is_empty()).then_some(if negative { -number } else { number })
}

/// Microseconds as written, in nanoseconds, and whether a fraction was written.
#[inline]
pub fn nanoseconds(value: &[u8]) -> Option<(i64, bool)> {
    let text = unquoted(value);
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    let mut number: i64 = 0;
    let mut places: Option<u32> = None;
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                if places == Some(3) {
                    continue;
                }
                number = number.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                places = places.map(|places| places + 1);
            }
            b'.' if places.is_none() => places = Some(0),
            _ => return by_float(text),
        }
    }
    if digits.is_empty() {
        return None;
    }
    let number = number.checked_mul(10i64.pow(3 - places.unwrap_or(0)))?;
    Some((if negative { -number } else { number }, places.is_some()))
}

fn by_float(text: &[u8]) -> Option<(i64, bool)> {
    let number = real(text)? * 1_000.0;
    (number.abs() < i64::MAX as f64).then_some((number.round() as i64, true))
}

/// A number with or without a fraction.
pub fn real(value: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(unquoted(value)).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// A string as people read it: escapes undone, what is not UTF-8 replaced.
pub fn text(written: &[u8]) -> String {
    if !written.contains(&b'\\') && !written.iter().any(|byte| byte.is_ascii_control()) {
        return String::from_utf8_lossy(written).into_owned();
    }
    let clean: String = String::from_utf8_lossy(written).chars().filter(|letter| !letter.is_control()).collect();
    serde_json::from_str(&format!("\"{clean}\"")).unwrap_or(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_to_the_nanosecond() {
        assert_eq!(nanoseconds(b"3844371692201.823"), Some((3_844_371_692_201_823, true)));
        assert_eq!(nanoseconds(b"1669783687464181"), Some((1_669_783_687_464_181_000, false)));
        assert_eq!(nanoseconds(b"-0.5"), Some((-500, true)));
        assert_eq!(nanoseconds(b"\"12\""), Some((12_000, false)));
        assert_eq!(nanoseconds(b"1.5e3"), Some((1_500_000, true)));
        assert_eq!(nanoseconds(b"99999999999999999999"), None);
        assert_eq!(integer(b"\"7\""), Some(7));
        assert_eq!(integer(b"7.0"), Some(7));
        assert_eq!(integer(b"0x0"), None);
        assert_eq!(integer(b""), None);
    }

    #[test]
    fn a_piece_that_is_cut_anywhere_is_incomplete_not_broken() {
        let whole = br#"{"a": {"b": [1, 2, "x\"}"]}, "c": -1.5}"#;
        for cut in 0..whole.len() {
            let mut cursor = Cursor::new(&whole[..cut]);
            assert_eq!(cursor.value(), Err(Stop::Incomplete), "cut at {cut}");
        }
        let mut cursor = Cursor::new(whole);
        assert_eq!(cursor.value(), Ok(&whole[..]));
    }

    #[test]
    fn control_characters_in_names_do_no_harm() {
        let mut cursor = Cursor::new(b"\"a\nb\x01\\u0041\" ");
        assert_eq!(cursor.string().map(text), Ok("abA".to_owned()));
    }
}
