//! Tables of an SQLite file, read row by row as they lie on its pages, by the published file format. Nothing is written,
//! locked or kept: memory is a few pages. Only what exports have is understood: tables with row ids and text in UTF-8.
//!
//! This is here instead of a library because a profile needs nothing but whole tables from the first row to the last, and
//! SQLite itself is a quarter of a million lines of C that everybody who builds this crate would compile.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first bytes of every such file.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Trees of tables are never deeper than this, even if a file says so.
const DEEPEST: usize = 32;

/// Values of a row beyond this size are left out.
const LONGEST_ROW: usize = 4 << 20;

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'r> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'r [u8]),
}

/// A table and its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub columns: Vec<String>,
    root: u32,
    /// The column that is the row's number, which is not stored with the row.
    row_id: Option<usize>,
}

impl Table {
    /// The place of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }
}

/// An open file.
pub struct Database {
    file: File,
    page_size: usize,
    /// Bytes of a page that rows may use.
    usable: usize,
    pages: u32,
    pub tables: Vec<Table>,
    /// Pages that could not be understood.
    pub damaged: u64,
    /// The file is shorter than it says.
    pub cut: bool,
    progress: Arc<AtomicU64>,
    /// What is read now is read once more later, and counts as progress then.
    pub ahead: bool,
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

impl Database {
    /// Opens a file and reads which tables it has. Bytes that are read are added to `progress`.
    pub fn open(path: &Path, progress: Arc<AtomicU64>) -> Result<Database> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut header = [0; 100];
        file.read_exact_at(&mut header, 0).map_err(|_| invalid("it is no SQLite file"))?;
        if !header.starts_with(MAGIC) {
            return Err(invalid("it is no SQLite file"));
        }
        let page_size = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65_536,
            size => usize::from(size),
        };
        if !page_size.is_power_of_two() || page_size < 512 {
            return Err(invalid("its pages have an impossible size"));
        }
        if !matches!(header[56..60], [0, 0, 0, 0 | 1]) {
            return Err(invalid("its text is not UTF-8"));
        }
        let said = u64::from(u32::from_be_bytes([header[28], header[29], header[30], header[31]]));
        let there = length / page_size as u64;
        let mut database = Database {
            file,
            page_size,
            usable: page_size - usize::from(header[20]),
            pages: u32::try_from(there).unwrap_or(u32::MAX),
            tables: Vec::new(),
            damaged: 0,
            cut: said > there,
            progress,
            ahead: false,
        };
        if database.usable < 480 {
            return Err(invalid("its pages have no room"));
        }
        database.tables = database.schema();
        Ok(database)
    }

    /// A table by its name.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.tables.iter().find(|table| table.name == name).cloned()
    }

    fn schema(&mut self) -> Vec<Table> {
        let columns = ["type", "name", "tbl_name", "rootpage", "sql"].map(str::to_owned).to_vec();
        let master = Table { name: "sqlite_master".to_owned(), columns, root: 1, row_id: None };
        let mut tables = Vec::new();
        self.rows(&master, |row| {
            if let [Value::Text(b"table"), Value::Text(name), _, Value::Integer(root), Value::Text(sql), ..] = row
                && let Ok(root) = u32::try_from(*root)
            {
                let name = String::from_utf8_lossy(name).into_owned();
                let (columns, row_id) = columns_of(&String::from_utf8_lossy(sql));
                tables.push(Table { name, columns, root, row_id });
            }
        });
        tables
    }

    /// Tells `each` the values of every row, in the order of the columns.
    pub fn rows(&mut self, table: &Table, mut each: impl FnMut(&[Value<'_>])) {
        // A file with a loop in its trees ends after as many pages as it has.
        let mut left = u64::from(self.pages) + 1;
        let mut stack = vec![(table.root, 0)];
        let mut page = vec![0; self.page_size];
        let mut spilled = Vec::new();
        let mut children = Vec::new();
        while let Some((number, depth)) = stack.pop() {
            if left == 0 || depth > DEEPEST || !self.page(number, &mut page) {
                self.damaged += 1;
                continue;
            }
            left -= 1;
            let at = if number == 1 { 100 } else { 0 };
            let read = match page.get(at) {
                Some(0x0d) => self.leaf(&page, at, table.row_id, &mut spilled, &mut each),
                Some(0x05) => {
                    children.clear();
                    let read = interior(&page, at, &mut children);
                    stack.extend(children.iter().rev().map(|child| (*child, depth + 1)));
                    read
                }
                _ => None,
            };
            self.damaged += u64::from(read.is_none());
        }
    }

    fn page(&self, number: u32, page: &mut [u8]) -> bool {
        let Some(before) = number.checked_sub(1).filter(|_| number <= self.pages) else { return false };
        if !self.ahead {
            self.progress.fetch_add(self.page_size as u64, Ordering::Relaxed);
        }
        self.file.read_exact_at(page, u64::from(before) * self.page_size as u64).is_ok()
    }

    fn leaf(
        &self,
        page: &[u8],
        at: usize,
        row_id: Option<usize>,
        spilled: &mut Vec<u8>,
        each: &mut impl FnMut(&[Value<'_>]),
    ) -> Option<()> {
        let mut whole = Some(());
        for cell in 0..usize::from(two(page, at + 3)?) {
            let place = usize::from(two(page, at + 8 + 2 * cell)?);
            whole = whole.and(self.cell(page, place, row_id, spilled, each));
        }
        whole
    }

    /// One row.
    fn cell(
        &self,
        page: &[u8],
        mut place: usize,
        row_id: Option<usize>,
        spilled: &mut Vec<u8>,
        each: &mut impl FnMut(&[Value<'_>]),
    ) -> Option<()> {
        let length = usize::try_from(varint(page, &mut place)?).ok()?;
        let number = varint(page, &mut place)?;
        let kept = local(length, self.usable);
        let mut payload = page.get(place..place.checked_add(kept)?)?;
        if kept < length {
            self.overflow(payload, length, four(page, place + kept)?, spilled)?;
            payload = spilled;
        }
        let mut values = record(payload)?;
        if let Some(value) = row_id.and_then(|at| values.get_mut(at)) {
            *value = Value::Integer(number);
        }
        each(&values);
        Some(())
    }

    /// Collects a row that goes on on other pages.
    fn overflow(&self, first: &[u8], length: usize, mut next: u32, spilled: &mut Vec<u8>) -> Option<()> {
        if length > LONGEST_ROW {
            return None;
        }
        spilled.clear();
        spilled.extend_from_slice(first);
        let mut page = vec![0; self.page_size];
        while spilled.len() < length {
            if !self.page(next, &mut page) {
                return None;
            }
            next = four(&page, 0)?;
            let wanted = (length - spilled.len()).min(self.usable - 4);
            spilled.extend_from_slice(page.get(4..4 + wanted)?);
        }
        Some(())
    }
}

/// How many bytes of a row lie on its own page.
fn local(length: usize, usable: usize) -> usize {
    let most = usable - 35;
    if length <= most {
        return length;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let wanted = least + (length - least) % (usable - 4);
    if wanted <= most { wanted } else { least }
}

fn interior(page: &[u8], at: usize, children: &mut Vec<u32>) -> Option<()> {
    let cells = usize::from(two(page, at + 3)?);
    for cell in 0..cells {
        children.push(four(page, usize::from(two(page, at + 12 + 2 * cell)?))?);
    }
    children.push(four(page, at + 8)?);
    Some(())
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let mut number: u64 = 0;
    for place in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if place == 8 {
            number = number << 8 | u64::from(byte);
            break;
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            break;
        }
    }
    Some(number as i64)
}

/// Takes a row apart.
fn record(payload: &[u8]) -> Option<Vec<Value<'_>>> {
    let mut values = Vec::with_capacity(16);
    let mut kinds = 0;
    let header = usize::try_from(varint(payload, &mut kinds)?).ok()?;
    let mut at = header;
    while kinds < header {
        let kind = varint(payload, &mut kinds)?;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind as usize,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let bytes = payload.get(at..at.checked_add(length)?)?;
        at += length;
        values.push(match kind {
            0 => Value::Null,
            7 => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            8 | 9 => Value::Integer(kind - 8),
            1..=6 => Value::Integer(integer(bytes)),
            _ => Value::Text(bytes),
        });
    }
    Some(values)
}

fn integer(bytes: &[u8]) -> i64 {
    let sign = bytes.first().map_or(0, |first| (*first as i8) >> 7) as i64;
    bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

/// The columns that a `CREATE TABLE` names, and the one that stands for the row's number.
fn columns_of(sql: &str) -> (Vec<String>, Option<usize>) {
    let plain: String =
        sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join(" ");
    let inner = plain.split_once('(').map_or("", |(_, rest)| rest);
    let (mut columns, mut row_id, mut depth, mut from) = (Vec::new(), None, 0, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => {
                let said = inner[from..at].trim();
                let upper = said.to_ascii_uppercase();
                let constraint = ["PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN KEY", "CONSTRAINT"];
                if !said.is_empty() && !constraint.iter().any(|word| upper.starts_with(word)) {
                    let mut words = said.split_whitespace();
                    let name = words.next().unwrap_or_default().trim_matches(['"', '`', '[', ']', '\'']).to_owned();
                    let whole = words.next().is_some_and(|kind| kind.eq_ignore_ascii_case("INTEGER"));
                    if whole && upper.contains("PRIMARY KEY") {
                        row_id = Some(columns.len());
                    }
                    columns.push(name);
                }
                from = at + 1;
                if letter == ')' {
                    break;
                }
            }
            _ => {}
        }
    }
    (columns, row_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_with_comments_types_and_constraints() {
        let sql = "CREATE TABLE StringIds (\n  id INTEGER NOT NULL PRIMARY KEY, -- of a string, (any)\n  \"value\" TEXT, f DECIMAL(3, 2),\n UNIQUE (id, value))";
        assert_eq!(columns_of(sql), (vec!["id".to_owned(), "value".to_owned(), "f".to_owned()], Some(0)));
        assert_eq!(columns_of("CREATE TABLE a (id INT PRIMARY KEY)").1, None);
        assert_eq!(columns_of("nonsense"), (Vec::new(), None));
    }

    #[test]
    fn numbers_of_all_lengths_are_read() {
        assert_eq!(integer(&[0xff]), -1);
        assert_eq!(integer(&[0x80, 0, 0]), -8_388_608);
        assert_eq!(integer(&[0x7f, 0xff]), 32_767);
        let mut at = 0;
        assert_eq!(varint(&[0x81, 0x00], &mut at), Some(128));
        assert_eq!(varint(&[0xff], &mut 0), None);
        assert_eq!(varint(&[0xff; 9], &mut 0), Some(-1));
    }
}
