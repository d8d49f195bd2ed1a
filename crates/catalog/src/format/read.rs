//! Bytes to a catalogue that can be searched.

use super::bytes::Cursor;
use super::{MAGIC, Section, VERSION};
use crate::error::CatalogError;
use std::borrow::Cow;
use std::ops::Range;

/// A larger version number means damaged bytes, not a newer program.
const NEWEST_IMAGINABLE: u32 = 10_000;

/// A region of a cloud.
#[derive(Clone, Debug)]
pub(crate) struct RegionRow {
    pub cloud: u32,
    pub region: u32,
    pub zones: Vec<u32>,
}

/// An instance type; strings are named by their number in the string table.
#[derive(Clone, Debug)]
pub(crate) struct TypeRow {
    pub name: u32,
    pub cloud: u32,
    pub accelerator: Option<u32>,
    pub model: Option<u32>,
    pub count_milli: u32,
    pub vcpus_milli: Option<u32>,
    pub memory_mib: Option<u32>,
    pub accelerator_memory_mib: Option<u32>,
    pub network_mbps: Option<u32>,
    pub fabric: Option<u32>,
    pub listings: Range<u32>,
    pub history: Range<u32>,
}

/// The stored bytes, with what is needed to find things in them.
#[derive(Clone, Debug)]
pub(crate) struct StoredCatalog {
    bytes: Cow<'static, [u8]>,
    sections: Vec<Range<usize>>,
    text: String,
    strings: Vec<Range<u32>>,
    pub regions: Vec<RegionRow>,
    pub types: Vec<TypeRow>,
    /// Checksum of the header, which holds the checksums of everything.
    pub digest: u32,
}

impl StoredCatalog {
    /// Reads the header and the rows. With `check`, every byte is checked: for files that somebody gave us.
    pub fn open(bytes: Cow<'static, [u8]>, name: &str, check: bool) -> Result<StoredCatalog, CatalogError> {
        let corrupt = |what: &str| CatalogError::Corrupt { name: name.to_owned(), what: what.to_owned() };
        let (sections, digest) = header(&bytes, name, check)?;
        let body = |section: Section| &bytes[sections[section as usize - 1].clone()];
        let (text, strings) = strings(body(Section::Strings)).ok_or_else(|| corrupt("the strings do not fit"))?;
        let regions = regions(body(Section::Regions), strings.len()).ok_or_else(|| corrupt("the places do not fit"))?;
        let types = types(body(Section::Types), strings.len()).ok_or_else(|| corrupt("the types do not fit"))?;
        let ends = |range: Option<&Range<u32>>| range.map_or(0, |range| range.end as usize);
        let listings_end = ends(types.last().map(|row| &row.listings));
        let history_end = ends(types.last().map(|row| &row.history));
        if listings_end != body(Section::Listings).len() || history_end != body(Section::History).len() {
            return Err(corrupt("the prices do not fit the types"));
        }
        Ok(StoredCatalog { bytes, sections, text, strings, regions, types, digest })
    }

    /// A section's bytes.
    pub fn body(&self, section: Section) -> &[u8] {
        &self.bytes[self.sections[section as usize - 1].clone()]
    }

    /// A section in postcard's form.
    pub fn unpack<'s, T: serde::Deserialize<'s>>(&'s self, section: Section) -> Option<T> {
        postcard::from_bytes(self.body(section)).ok()
    }

    /// A string.
    pub fn string(&self, place: u32) -> &str {
        let range = &self.strings[place as usize];
        &self.text[range.start as usize..range.end as usize]
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn header(bytes: &[u8], name: &str, check: bool) -> Result<(Vec<Range<usize>>, u32), CatalogError> {
    let corrupt = |what: &str| CatalogError::Corrupt { name: name.to_owned(), what: what.to_owned() };
    let mut cursor = Cursor::new(bytes);
    if cursor.take(MAGIC.len()) != Some(MAGIC) {
        return Err(CatalogError::Foreign { name: name.to_owned() });
    }
    let version = cursor.fixed().ok_or_else(|| corrupt("it ends in its header"))?;
    if version > NEWEST_IMAGINABLE {
        return Err(corrupt("its header makes no sense"));
    }
    if version != VERSION {
        return Err(CatalogError::Version { name: name.to_owned(), found: version, known: VERSION });
    }
    let count = cursor.fixed().filter(|count| *count as usize == Section::ALL.len());
    count.ok_or_else(|| corrupt("it has too few or too many sections"))?;
    let mut sections = Vec::new();
    for section in Section::ALL {
        let mut word = || cursor.fixed().ok_or_else(|| corrupt("it ends in its header"));
        let (id, offset, length, crc) = (word()?, word()? as usize, word()? as usize, word()?);
        let range = offset..offset.saturating_add(length);
        let body = bytes.get(range.clone()).filter(|_| id == section as u32);
        let body = body.ok_or_else(|| corrupt("it breaks off"))?;
        if check && crc32fast::hash(body) != crc {
            return Err(corrupt(&format!("the checksum of its {section:?} section does not fit")));
        }
        sections.push(range);
    }
    let end = MAGIC.len() + 8 + Section::ALL.len() * 16;
    let digest = crc32fast::hash(&bytes[..end]);
    if cursor.fixed() != Some(digest) {
        return Err(corrupt("the checksum of its header does not fit"));
    }
    Ok((sections, digest))
}

fn strings(bytes: &[u8]) -> Option<(String, Vec<Range<u32>>)> {
    let mut cursor = Cursor::new(bytes);
    let count = bounded(cursor.small()?, bytes)?;
    let mut ranges = Vec::with_capacity(count);
    let mut at = 0u32;
    for _ in 0..count {
        let end = at.checked_add(cursor.small()?)?;
        ranges.push(at..end);
        at = end;
    }
    let text = String::from_utf8(cursor.take(at as usize)?.to_vec()).ok()?;
    let fits = ranges.iter().all(|range| text.is_char_boundary(range.start as usize));
    (fits && cursor.is_done()).then_some((text, ranges))
}

fn regions(bytes: &[u8], strings: usize) -> Option<Vec<RegionRow>> {
    let mut cursor = Cursor::new(bytes);
    let count = bounded(cursor.small()?, bytes)?;
    let mut regions = Vec::with_capacity(count);
    let string = |place: u32| ((place as usize) < strings).then_some(place);
    for _ in 0..count {
        let (cloud, region) = (string(cursor.small()?)?, string(cursor.small()?)?);
        let zones = bounded(cursor.small()?, bytes)?;
        let zones = (0..zones).map(|_| string(cursor.small()?)).collect::<Option<Vec<u32>>>()?;
        regions.push(RegionRow { cloud, region, zones });
    }
    Some(regions)
}

fn types(bytes: &[u8], strings: usize) -> Option<Vec<TypeRow>> {
    let mut cursor = Cursor::new(bytes);
    let count = bounded(cursor.small()?, bytes)?;
    let mut types = Vec::with_capacity(count);
    let (mut listed, mut told) = (0u32, 0u32);
    let string = |place: u32| ((place as usize) < strings).then_some(place);
    let optional = |place: Option<u32>| match place {
        Some(place) => string(place).map(Some),
        None => Some(None),
    };
    for _ in 0..count {
        let mut row = TypeRow {
            name: string(cursor.small()?)?,
            cloud: string(cursor.small()?)?,
            accelerator: optional(cursor.optional()?)?,
            model: cursor.optional()?,
            count_milli: cursor.small()?,
            vcpus_milli: cursor.optional()?,
            memory_mib: cursor.optional()?,
            accelerator_memory_mib: cursor.optional()?,
            network_mbps: cursor.optional()?,
            fabric: optional(cursor.optional()?)?,
            listings: listed..listed,
            history: told..told,
        };
        listed = listed.checked_add(cursor.small()?)?;
        told = told.checked_add(cursor.small()?)?;
        (row.listings.end, row.history.end) = (listed, told);
        types.push(row);
    }
    cursor.is_done().then_some(types)
}

/// A count of things that take at least a byte each cannot exceed the bytes there are.
fn bounded(count: u32, bytes: &[u8]) -> Option<usize> {
    let count = count as usize;
    (count <= bytes.len()).then_some(count)
}
