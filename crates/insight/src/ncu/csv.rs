//! Fields of comma-separated lines, as Nsight Compute writes them: quoted, with commas in numbers, and line ends in advice.

/// Text that goes on over more lines than this is no table.
const LONGEST: usize = 256 << 10;

/// Puts lines together to records.
#[derive(Default)]
pub struct Records {
    open: String,
}

impl Records {
    /// Takes a line; tells `record` the fields of a record that it ends.
    pub fn line(&mut self, line: &str, mut record: impl FnMut(&[String])) {
        if !self.open.is_empty() {
            self.open.push('\n');
        }
        self.open.push_str(line);
        if !closed(&self.open) && self.open.len() < LONGEST {
            return;
        }
        let whole = std::mem::take(&mut self.open);
        if whole.starts_with('"') {
            record(&fields(&whole));
        }
    }
}

/// Whether every quote that was opened is closed.
fn closed(text: &str) -> bool {
    // Only tables have quotes that matter: `==PROF==` and what a program prints do not begin with one.
    !text.starts_with('"') || text.bytes().filter(|byte| *byte == b'"').count().is_multiple_of(2)
}

fn fields(record: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = record.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                fields.last_mut().map(|field| field.push('"')).unwrap_or_default();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().map(|field| field.push(other)).unwrap_or_default(),
        }
    }
    fields
}

/// A number as Nsight Compute writes it: `1,051,085.5`.
pub fn number(text: &str) -> Option<f64> {
    let plain: String = text.chars().filter(|letter| *letter != ',').collect();
    plain.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// How many of the plain unit a unit is: nanoseconds, bytes, hertz; 1 where there is no prefix that is known.
pub fn scale(unit: &str) -> f64 {
    let unit = unit.split('/').next().unwrap_or_default().trim();
    match unit {
        "us" | "usecond" => 1e3,
        "ms" | "msecond" => 1e6,
        "s" | "second" => 1e9,
        "Kbyte" | "Khz" => 1e3,
        "Mbyte" | "Mhz" => 1e6,
        "Gbyte" | "Ghz" => 1e9,
        "Tbyte" | "Thz" => 1e12,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_may_have_commas_quotes_and_line_ends() {
        let mut all = Vec::new();
        let mut records = Records::default();
        for line in ["==PROF== it's \"1", "\"1,5\",\"say \"\"no\"\"\",\"two", "lines\"", "a,b", "\"last\""] {
            records.line(line, |fields| all.push(fields.to_vec()));
        }
        assert_eq!(all, [vec!["1,5", "say \"no\"", "two\nlines"], vec!["last"]]);
    }

    #[test]
    fn numbers_have_separators_and_units() {
        assert_eq!(number("1,051,085.5"), Some(1_051_085.5));
        assert_eq!(number("PolicySpread"), None);
        assert_eq!(number("nan"), None);
        assert_eq!([scale("us"), scale("Tbyte/s"), scale("%"), scale("nsecond")], [1e3, 1e12, 1.0, 1.0]);
    }
}
