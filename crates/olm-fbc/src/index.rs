//! Where each object of a `catalog.jsonl` lies, and which objects a query wants (catalogd §6.4, §7.6).
//!
//! Queries are answered from the index alone: byte ranges of the content, never a scan. The file form is ours:
//! little-endian tables with a length and a hash at the end, so that a torn file is noticed.

use std::{collections::HashMap, ops::Range};

use thiserror::Error;

const MAGIC: &[u8; 8] = b"OLMFBCI1";
/// Bytes of one object in the file form.
const ENTRY: usize = 8 + 8 + 4 + 4 + 4;

/// A filter by exact texts. Empty ones do not constrain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query<'a> {
    pub schema: &'a str,
    pub package: &'a str,
    pub name: &'a str,
}

impl Query<'_> {
    /// Whether nothing is constrained, which means the whole content.
    pub fn is_all(&self) -> bool {
        self.schema.is_empty() && self.package.is_empty() && self.name.is_empty()
    }
}

/// One object as the index knows it. Empty texts are absent members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located<'a> {
    pub schema: &'a str,
    pub package: &'a str,
    pub name: &'a str,
    /// First byte in the content.
    pub offset: u64,
    /// Bytes, line end included.
    pub length: u64,
}

impl Located<'_> {
    /// The bytes of the content that hold the object.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IndexError {
    #[error("the catalog index is not of a known format")]
    Format,
    /// Cut short or changed.
    #[error("the catalog index is damaged")]
    Damaged,
}

/// 32 bytes: an index of a million objects takes 32 MiB, 12 MB more for the three [`Postings`], and what its texts need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    offset: u64,
    length: u64,
    schema: u32,
    package: u32,
    name: u32,
}

/// Object numbers by text number, in content order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Postings {
    starts: Vec<u32>,
    objects: Vec<u32>,
}

impl Postings {
    fn new(texts: usize, ids: impl Iterator<Item = u32> + Clone) -> Self {
        let mut starts = vec![0_u32; texts + 1];
        for id in ids.clone() {
            starts[id as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut objects = vec![0; ids.clone().count()];
        for (object, id) in ids.enumerate() {
            objects[next[id as usize] as usize] = object as u32;
            next[id as usize] += 1;
        }
        Self { starts, objects }
    }

    fn entries(&self, id: u32) -> &[u32] {
        let id = id as usize;
        match (self.starts.get(id), self.starts.get(id + 1)) {
            (Some(&start), Some(&end)) => &self.objects[start as usize..end as usize],
            _ => &[],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// Texts one after the other.
    texts: String,
    /// End of each text; text 0 is the empty one.
    ends: Vec<u32>,
    /// Numbers of the texts, ordered by text.
    sorted: Vec<u32>,
    entries: Vec<Entry>,
    by_schema: Postings,
    by_package: Postings,
    by_name: Postings,
    size: u64,
}

/// What a text costs an [`IndexBuilder`] besides its bytes, which it holds twice: number, end, order and postings (24 bytes),
/// its allocation (up to 32) and its slot of the hash table, which may be less than half full (25 each).
const TEXT_OVERHEAD: u64 = 128;

/// Collects objects in content order.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    texts: String,
    ends: Vec<u32>,
    numbers: HashMap<Box<str>, u32>,
    entries: Vec<Entry>,
    size: u64,
}

impl IndexBuilder {
    pub fn new() -> Self {
        let mut builder = Self::default();
        builder.number("");
        builder
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.ends.len() as u32;
        self.texts.push_str(text);
        self.ends.push(self.texts.len() as u32);
        self.numbers.insert(text.into(), number);
        number
    }

    /// Notes that the next `length` bytes of the content are one object.
    pub fn push(&mut self, schema: &str, package: &str, name: &str, length: u64) {
        let entry = Entry {
            offset: self.size,
            length,
            schema: self.number(schema),
            package: self.number(package),
            name: self.number(name),
        };
        self.size += length;
        self.entries.push(entry);
    }

    /// Bytes of memory that the distinct schemas, packages and names take.
    pub(crate) fn text_memory(&self) -> u64 {
        2 * self.texts.len() as u64 + TEXT_OVERHEAD * self.ends.len() as u64
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The index in another content order: the objects of each range of object numbers, one range after the
    /// other. Ranges may repeat or leave out objects.
    pub(crate) fn reorder(self, order: &[Range<usize>]) -> Index {
        let Self { texts, ends, numbers, entries: unordered, .. } = self;
        // what is not needed any more is freed before the next allocation
        drop(numbers);
        let mut size = 0;
        let mut entries = Vec::with_capacity(order.iter().map(Range::len).sum());
        for entry in order.iter().flat_map(|range| &unordered[range.clone()]) {
            entries.push(Entry { offset: size, ..*entry });
            size += entry.length;
        }
        drop(unordered);
        Index::assemble(texts, ends, entries, size)
    }

    pub fn finish(self) -> Index {
        Index::assemble(self.texts, self.ends, self.entries, self.size)
    }
}

impl Index {
    fn assemble(texts: String, ends: Vec<u32>, entries: Vec<Entry>, size: u64) -> Self {
        let mut index = Self { texts, ends, entries, size, ..Self::default() };
        let count = index.ends.len();
        let mut sorted: Vec<u32> = (0..count as u32).collect();
        sorted.sort_unstable_by(|&a, &b| index.text(a).cmp(index.text(b)));
        index.sorted = sorted;
        index.by_schema = Postings::new(count, index.entries.iter().map(|e| e.schema));
        index.by_package = Postings::new(count, index.entries.iter().map(|e| e.package));
        index.by_name = Postings::new(count, index.entries.iter().map(|e| e.name));
        index
    }

    fn text(&self, number: u32) -> &str {
        let number = number as usize;
        let start = if number == 0 { 0 } else { self.ends.get(number - 1).copied().unwrap_or(0) };
        let end = self.ends.get(number).copied().unwrap_or(start);
        self.texts.get(start as usize..end as usize).unwrap_or_default()
    }

    fn number(&self, text: &str) -> Option<u32> {
        let found = self.sorted.binary_search_by(|&number| self.text(number).cmp(text));
        found.ok().map(|at| self.sorted[at])
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the content.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that it takes in memory.
    pub fn memory(&self) -> usize {
        let postings = [&self.by_schema, &self.by_package, &self.by_name];
        let numbers = postings.into_iter().flat_map(|it| [&it.starts, &it.objects]);
        let numbers = numbers.chain([&self.ends, &self.sorted]).map(Vec::capacity).sum::<usize>();
        self.texts.capacity() + self.entries.capacity() * size_of::<Entry>() + numbers * size_of::<u32>()
    }

    /// All objects in content order.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = Located<'_>> {
        self.entries.iter().map(|entry| self.located(entry))
    }

    /// The object at a place in content order.
    pub fn object(&self, at: usize) -> Option<Located<'_>> {
        self.entries.get(at).map(|entry| self.located(entry))
    }

    fn located(&self, entry: &Entry) -> Located<'_> {
        Located {
            schema: self.text(entry.schema),
            package: self.text(entry.package),
            name: self.text(entry.name),
            offset: entry.offset,
            length: entry.length,
        }
    }

    /// The objects that a query wants, in content order. Objects without a schema are in no answer but the
    /// unconstrained one (catalogd §6.4).
    pub fn find(&self, query: &Query<'_>) -> Vec<Located<'_>> {
        self.matching(query).iter().map(|&object| self.located(&self.entries[object as usize])).collect()
    }

    /// The bytes of the content that answer a query: ascending, neighbours joined.
    pub fn sections(&self, query: &Query<'_>) -> Vec<Range<u64>> {
        if query.is_all() {
            return if self.size == 0 { Vec::new() } else { std::iter::once(0..self.size).collect() };
        }
        self.join(self.matching(query).into_iter())
    }

    fn join(&self, objects: impl Iterator<Item = u32>) -> Vec<Range<u64>> {
        let mut sections: Vec<Range<u64>> = Vec::new();
        for object in objects {
            let Entry { offset, length, .. } = self.entries[object as usize];
            match sections.last_mut() {
                Some(last) if last.end == offset => last.end += length,
                _ => sections.push(offset..offset + length),
            }
        }
        sections
    }

    fn matching(&self, query: &Query<'_>) -> Vec<u32> {
        if query.is_all() {
            return (0..self.entries.len() as u32).collect();
        }
        // `None` constrains nothing; a text that no object has wants nothing
        let filter =
            |text: &str| if text.is_empty() { Ok(None) } else { self.number(text).map(Some).ok_or(()) };
        let (Ok(schema), Ok(package), Ok(name)) =
            (filter(query.schema), filter(query.package), filter(query.name))
        else {
            return Vec::new();
        };
        let lists = [(&self.by_schema, schema), (&self.by_package, package), (&self.by_name, name)];
        let lists = lists.into_iter().filter_map(|(postings, id)| id.map(|id| postings.entries(id)));
        let shortest = lists.min_by_key(|list| list.len()).unwrap_or_default();
        let fits = |&&object: &&u32| {
            let entry = &self.entries[object as usize];
            entry.schema != 0
                && schema.is_none_or(|id| id == entry.schema)
                && package.is_none_or(|id| id == entry.package)
                && name.is_none_or(|id| id == entry.name)
        };
        shortest.iter().filter(fits).copied().collect()
    }

    /// Names of the packages: of every `olm.package` object and every `package` member, sorted, each once.
    pub fn packages(&self) -> Vec<&str> {
        let owned = |entry: &Entry| match self.text(entry.schema) {
            crate::schema::PACKAGE => entry.name,
            _ => entry.package,
        };
        let mut seen = vec![false; self.ends.len()];
        for entry in &self.entries {
            seen[owned(entry) as usize] = true;
        }
        let names = self.sorted.iter().filter(|&&number| number != 0 && seen[number as usize]);
        names.map(|&number| self.text(number)).collect()
    }

    /// The bytes of everything that belongs to one package, its `olm.package` object included: ascending,
    /// neighbours joined.
    pub fn package_sections(&self, package: &str) -> Vec<Range<u64>> {
        let Some(number) = self.number(package).filter(|&number| number != 0) else { return Vec::new() };
        let is_package =
            |&object: &u32| self.text(self.entries[object as usize].schema) == crate::schema::PACKAGE;
        let mut objects: Vec<u32> =
            self.by_package.entries(number).iter().copied().filter(|o| !is_package(o)).collect();
        objects.extend(self.by_name.entries(number).iter().copied().filter(is_package));
        objects.sort_unstable();
        self.join(objects.into_iter())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(64 + self.texts.len() + 4 * self.ends.len() + ENTRY * self.entries.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.ends.len() as u64).to_le_bytes());
        for end in &self.ends {
            out.extend_from_slice(&end.to_le_bytes());
        }
        for entry in &self.entries {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.length.to_le_bytes());
            for number in [entry.schema, entry.package, entry.name] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(self.texts.as_bytes());
        let trailer = hash(&out);
        out.extend_from_slice(&(out.len() as u64 + 16).to_le_bytes());
        out.extend_from_slice(&trailer.to_le_bytes());
        out
    }

    /// Reads the file form.
    ///
    /// # Errors
    /// Another format, or bytes that are not what was written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, IndexError> {
        let body = bytes.strip_prefix(MAGIC).ok_or(IndexError::Format)?;
        let (body, trailer) = body.split_last_chunk::<16>().ok_or(IndexError::Damaged)?;
        let mut trailer = Fields(trailer);
        let whole = trailer.u64()? == bytes.len() as u64;
        if !whole || trailer.u64()? != hash(&bytes[..bytes.len() - 16]) {
            return Err(IndexError::Damaged);
        }
        let mut fields = Fields(body);
        let size = fields.u64()?;
        let objects = usize::try_from(fields.u64()?).map_err(|_| IndexError::Damaged)?;
        let texts = usize::try_from(fields.u64()?).map_err(|_| IndexError::Damaged)?;
        let tables = objects.checked_mul(ENTRY).and_then(|n| n.checked_add(texts.checked_mul(4)?));
        if tables.is_none_or(|tables| tables > fields.0.len()) {
            return Err(IndexError::Damaged);
        }
        let mut ends = Vec::with_capacity(texts);
        for _ in 0..texts {
            ends.push(fields.u32()?);
        }
        let mut entries = Vec::with_capacity(objects);
        for _ in 0..objects {
            let entry = Entry {
                offset: fields.u64()?,
                length: fields.u64()?,
                schema: fields.u32()?,
                package: fields.u32()?,
                name: fields.u32()?,
            };
            let known = [entry.schema, entry.package, entry.name].iter().all(|&n| (n as usize) < texts);
            if !known || entry.offset.checked_add(entry.length).is_none_or(|end| end > size) {
                return Err(IndexError::Damaged);
            }
            entries.push(entry);
        }
        let text = std::str::from_utf8(fields.0).map_err(|_| IndexError::Damaged)?.to_owned();
        let ascending = ends.is_sorted() && ends.iter().all(|&end| text.is_char_boundary(end as usize));
        if !ascending {
            return Err(IndexError::Damaged);
        }
        Ok(Self::assemble(text, ends, entries, size))
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> Result<u64, IndexError> {
        let (head, rest) = self.0.split_first_chunk::<8>().ok_or(IndexError::Damaged)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*head))
    }

    fn u32(&mut self) -> Result<u32, IndexError> {
        let (head, rest) = self.0.split_first_chunk::<4>().ok_or(IndexError::Damaged)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*head))
    }
}

/// FNV-1a over words: notices a torn or changed file, nothing more.
fn hash(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let mut hash = 0xCBF2_9CE4_8422_2325_u64 ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    }
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut builder = IndexBuilder::new();
        builder.push("olm.package", "", "foo", 10);
        builder.push("olm.channel", "foo", "stable", 20);
        builder.push("olm.bundle", "foo", "foo.v1", 30);
        builder.push("", "foo", "schemaless", 5);
        builder.push("olm.package", "", "bar", 7);
        builder.push("olm.bundle", "foo", "foo.v2", 8);
        builder.push("olm.bundle", "bar", "foo.v1", 9);
        builder.push("my.thing", "foo", "", 3);
        builder.finish()
    }

    fn pairs(sections: Vec<Range<u64>>) -> Vec<(u64, u64)> {
        sections.into_iter().map(|section| (section.start, section.end)).collect()
    }

    #[test]
    fn index_answers_queries_of_catalogd_7_6() {
        let index = index();
        let query = |schema, package, name| pairs(index.sections(&Query { schema, package, name }));
        assert_eq!(query("", "", ""), [(0, 92)]);
        assert_eq!(query("olm.bundle", "", ""), [(30, 60), (72, 89)]);
        assert_eq!(
            query("", "foo", ""),
            [(10, 60), (72, 80), (89, 92)],
            "no schemaless object, no olm.package"
        );
        assert_eq!(query("", "", "foo"), [(0, 10)]);
        assert_eq!(query("olm.bundle", "foo", "foo.v1"), [(30, 60)]);
        assert_eq!(query("", "", "schemaless"), []);
        assert_eq!(query("OLM.bundle", "", ""), []);
        assert_eq!(query("olm.bundle", "", "stable"), []);
        assert_eq!(index.find(&Query { name: "foo.v1", ..Query::default() }).len(), 2);
        assert_eq!(pairs(IndexBuilder::new().finish().sections(&Query::default())), []);
    }

    #[test]
    fn index_has_packages_and_all_that_is_theirs() {
        let index = index();
        assert_eq!(index.packages(), ["bar", "foo"]);
        assert_eq!(pairs(index.package_sections("foo")), [(0, 65), (72, 80), (89, 92)]);
        assert_eq!(pairs(index.package_sections("bar")), [(65, 72), (80, 89)]);
        assert_eq!(pairs(index.package_sections("")), []);
        assert_eq!(pairs(index.package_sections("nope")), []);
    }

    #[test]
    fn index_memory_grows_with_objects_and_texts() {
        let mut builder = IndexBuilder::new();
        (0..1000).for_each(|number| builder.push("olm.bundle", "p", &format!("{number:0100}"), 1));
        let index = builder.finish();
        // an object, its three postings, and its name with its end, order and places in the postings
        let least = 1000 * (32 + 3 * 4 + 100 + 5 * 4);
        for index in [Index::from_bytes(&index.to_bytes()).unwrap(), index] {
            assert!((least..2 * least).contains(&index.memory()), "{}", index.memory());
        }
    }

    #[test]
    fn file_form_round_trips_and_notices_damage() {
        let index = index();
        let bytes = index.to_bytes();
        assert_eq!(Index::from_bytes(&bytes), Ok(index));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(Index::from_bytes(&damaged).is_err(), "byte {at} changed");
            assert!(Index::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(Index::from_bytes(b"{\"by_schema\":{}}"), Err(IndexError::Format));
    }
}
