//! The index of one `catalog.jsonl`: which byte ranges answer a query by schema, package and name.
//!
//! Small (about 28 bytes an object and each distinct word once), kept in memory and written beside the content, so
//! that a query never scans the catalog. It knows offsets and words only, never what an object says.
//! Rule: catalogd §6.4 (query results; the file format is our own).

use std::collections::HashMap;

/// No word: the object has no such field.
const NONE: u32 = u32::MAX;
/// First bytes of an index file; the digit is the format's version.
const MAGIC: &[u8; 8] = b"OLMIDX1\n";

/// Where a run of bytes lies in `catalog.jsonl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// First byte.
    pub start: u64,
    /// How many bytes, line ends included.
    pub len: u64,
}

/// A question to the index; `None` puts no constraint on that field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Query {
    /// Exact value of `schema`.
    pub schema: Option<String>,
    /// Exact value of `package`.
    pub package: Option<String>,
    /// Exact value of `name`.
    pub name: Option<String>,
}

impl Query {
    /// Whether no field is constrained: the answer is then the whole catalog.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.schema.is_none() && self.package.is_none() && self.name.is_none()
    }
}

/// The words of one field, sorted, and for each the objects that carry it in file order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    text: String,
    /// End of each word in `text`.
    ends: Vec<u32>,
    /// Where the objects of each word end in `objects`.
    posting_ends: Vec<u32>,
    objects: Vec<u32>,
}

impl Words {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn word(&self, at: usize) -> &str {
        let from = if at == 0 { 0 } else { self.ends.get(at - 1).copied().unwrap_or(0) };
        let to = self.ends.get(at).copied().unwrap_or(0);
        self.text.get(from as usize..to as usize).unwrap_or("")
    }

    fn find(&self, word: &str) -> Option<u32> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.word(middle).cmp(word) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return u32::try_from(middle).ok(),
            }
        }
        None
    }

    fn postings(&self, word: u32) -> &[u32] {
        let at = word as usize;
        let from = if at == 0 { 0 } else { self.posting_ends.get(at - 1).copied().unwrap_or(0) };
        let to = self.posting_ends.get(at).copied().unwrap_or(0);
        self.objects.get(from as usize..to as usize).unwrap_or(&[])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    start: u64,
    len: u64,
    /// Word numbers of schema, package, name.
    words: [u32; 3],
}

/// Why an index file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IndexError {
    /// Not our file, or another version of it.
    #[error("not an index of this version")]
    Foreign,
    /// It ends early or its parts contradict each other.
    #[error("index is damaged at byte {0}")]
    Damaged(usize),
    /// More objects or words than 32-bit numbers can count.
    #[error("catalog has too many objects or too long names for its index")]
    TooLarge,
}

/// The index of one catalog.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Index {
    entries: Vec<Entry>,
    fields: [Words; 3],
}

impl Index {
    /// How many objects the catalog holds, those without a schema included.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.entries.len()
    }

    /// The sections that answer `query`, in file order, neighbours joined. An object without a schema is in no
    /// answer to a constrained query (rule: catalogd §6.4).
    #[must_use]
    pub fn sections(&self, query: &Query) -> Vec<Section> {
        let wanted = [&query.schema, &query.package, &query.name];
        let mut numbers = [NONE; 3];
        let mut best: Option<&[u32]> = None;
        for ((word, words), number) in wanted.into_iter().zip(&self.fields).zip(&mut numbers) {
            let Some(word) = word else { continue };
            let Some(found) = words.find(word) else { return Vec::new() };
            *number = found;
            let postings = words.postings(found);
            if best.is_none_or(|best| postings.len() < best.len()) {
                best = Some(postings);
            }
        }
        let mut sections = Vec::new();
        let mut push = |entry: &Entry| join(&mut sections, Section { start: entry.start, len: entry.len });
        match best {
            None => self.entries.iter().for_each(&mut push),
            Some(postings) => postings
                .iter()
                .filter_map(|&at| self.entries.get(at as usize))
                .filter(|entry| entry.words[0] != NONE)
                .filter(|entry| {
                    numbers.iter().zip(&entry.words).all(|(want, has)| *want == NONE || want == has)
                })
                .for_each(&mut push),
        }
        sections
    }

    /// The sections of single objects that answer `query`, in file order, not joined.
    pub fn objects_of(&self, query: &Query) -> impl Iterator<Item = Section> {
        let wanted = [&query.schema, &query.package, &query.name];
        let numbers: Option<Vec<u32>> = wanted
            .into_iter()
            .zip(&self.fields)
            .map(|(word, words)| word.as_ref().map_or(Some(NONE), |word| words.find(word)))
            .collect();
        self.entries.iter().filter_map(move |entry| {
            let numbers = numbers.as_ref()?;
            let fits = entry.words[0] != NONE
                && numbers.iter().zip(&entry.words).all(|(want, has)| *want == NONE || want == has);
            fits.then_some(Section { start: entry.start, len: entry.len })
        })
    }

    /// The distinct values of `schema`, sorted.
    pub fn schemas(&self) -> impl Iterator<Item = &str> {
        (0..self.fields[0].len()).map(|at| self.fields[0].word(at))
    }

    /// The bytes of the index file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.entries.len() * 40);
        out.extend_from_slice(MAGIC);
        put(&mut out, self.entries.len());
        for entry in &self.entries {
            out.extend_from_slice(&entry.start.to_le_bytes());
            out.extend_from_slice(&entry.len.to_le_bytes());
            for word in entry.words {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        for words in &self.fields {
            put(&mut out, words.text.len());
            out.extend_from_slice(words.text.as_bytes());
            put(&mut out, words.ends.len());
            words.ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        }
        out
    }

    /// Reads what [`Index::encode`] wrote; `size` is the length of `catalog.jsonl`, which no section may pass.
    ///
    /// # Errors
    /// When the bytes are not an intact index of this version.
    pub fn decode(bytes: &[u8], size: u64) -> Result<Self, IndexError> {
        let mut from = Reader { bytes, at: 0 };
        if from.take(MAGIC.len()).ok() != Some(MAGIC.as_slice()) {
            return Err(IndexError::Foreign);
        }
        let count = from.count(28)?;
        let mut entries = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let (start, len) = (from.u64()?, from.u64()?);
            let words = [from.u32()?, from.u32()?, from.u32()?];
            let stop = start.checked_add(len).filter(|stop| start >= end && *stop <= size);
            end = stop.ok_or(IndexError::Damaged(from.at))?;
            entries.push(Entry { start, len, words });
        }
        let mut fields: [Words; 3] = Default::default();
        for (field, words) in fields.iter_mut().enumerate() {
            let length = from.count(1)?;
            let text = std::str::from_utf8(from.take(length)?).map_err(|_| IndexError::Damaged(from.at))?;
            text.clone_into(&mut words.text);
            for _ in 0..from.count(4)? {
                let end = from.u32()?;
                if !words.text.is_char_boundary(end as usize)
                    || words.ends.last().is_some_and(|last| *last >= end)
                {
                    return Err(IndexError::Damaged(from.at));
                }
                words.ends.push(end);
            }
            post(words, &entries, field).ok_or(IndexError::Damaged(from.at))?;
        }
        if from.at == bytes.len() { Ok(Self { entries, fields }) } else { Err(IndexError::Damaged(from.at)) }
    }
}

/// Appends `section`, joined with the last one when they touch.
fn join(sections: &mut Vec<Section>, section: Section) {
    match sections.last_mut() {
        Some(last) if last.start + last.len == section.start => last.len += section.len,
        _ => sections.push(section),
    }
}

/// Fills the postings of one field from the entries; `None` when an entry names a word that is not there.
fn post(words: &mut Words, entries: &[Entry], field: usize) -> Option<()> {
    let mut counts = vec![0_u32; words.len()];
    for number in entries.iter().filter_map(|entry| entry.words.get(field)).filter(|number| **number != NONE)
    {
        *counts.get_mut(*number as usize)? += 1;
    }
    let mut total = 0;
    let mut next = Vec::with_capacity(counts.len());
    for count in counts {
        next.push(total);
        total += count;
        words.posting_ends.push(total);
    }
    words.objects = vec![0; total as usize];
    for (at, entry) in entries.iter().enumerate() {
        let number = entry.words[field];
        if number != NONE {
            let slot = next.get_mut(number as usize)?;
            *words.objects.get_mut(*slot as usize)? = u32::try_from(at).ok()?;
            *slot += 1;
        }
    }
    Some(())
}

fn put(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u64).to_le_bytes());
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], IndexError> {
        let end = self.at.checked_add(count).ok_or(IndexError::Damaged(self.at))?;
        let taken = self.bytes.get(self.at..end).ok_or(IndexError::Damaged(self.at))?;
        self.at = end;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, IndexError> {
        let taken = self.take(4)?;
        Ok(taken.try_into().map(u32::from_le_bytes).unwrap_or_default())
    }

    fn u64(&mut self) -> Result<u64, IndexError> {
        let taken = self.take(8)?;
        Ok(taken.try_into().map(u64::from_le_bytes).unwrap_or_default())
    }

    /// A number of things of `size` bytes each, which the rest of the file must be able to hold.
    fn count(&mut self, size: usize) -> Result<usize, IndexError> {
        let at = self.at;
        let count = usize::try_from(self.u64()?).map_err(|_| IndexError::Damaged(at))?;
        let room = (self.bytes.len() - self.at) / size;
        if count <= room { Ok(count) } else { Err(IndexError::Damaged(at)) }
    }
}

/// Collects objects in file order and makes the [`Index`].
#[derive(Debug, Default)]
pub struct IndexBuilder {
    entries: Vec<Entry>,
    /// Per field: word to number, in order of appearance.
    seen: [HashMap<Box<str>, u32>; 3],
    end: u64,
}

impl IndexBuilder {
    /// Notes the next object, `len` bytes long with its line end. Empty words count as absent.
    ///
    /// # Errors
    /// When there are more objects than an index can count.
    pub fn push(&mut self, schema: &str, package: &str, name: &str, len: u64) -> Result<(), IndexError> {
        let mut words = [NONE; 3];
        for ((word, seen), number) in [schema, package, name].into_iter().zip(&mut self.seen).zip(&mut words)
        {
            if word.is_empty() {
                continue;
            }
            *number = match seen.get(word) {
                Some(known) => *known,
                None => {
                    let next = u32::try_from(seen.len()).ok().filter(|next| *next != NONE);
                    let next = next.ok_or(IndexError::TooLarge)?;
                    seen.insert(word.into(), next);
                    next
                }
            };
        }
        if self.entries.len() >= NONE as usize {
            return Err(IndexError::TooLarge);
        }
        self.entries.push(Entry { start: self.end, len, words });
        self.end += len;
        Ok(())
    }

    /// How many bytes of catalog have been noted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Sorts the words and numbers them anew.
    ///
    /// # Errors
    /// When the words of one field are longer than 4 GiB together.
    pub fn finish(self) -> Result<Index, IndexError> {
        let Self { mut entries, seen, .. } = self;
        let mut fields: [Words; 3] = Default::default();
        for (field, (words, seen)) in fields.iter_mut().zip(seen).enumerate() {
            let mut sorted: Vec<(Box<str>, u32)> = seen.into_iter().collect();
            sorted.sort_unstable();
            let mut renumbered = vec![NONE; sorted.len()];
            for (at, (word, old)) in sorted.into_iter().enumerate() {
                words.text.push_str(&word);
                words.ends.push(u32::try_from(words.text.len()).map_err(|_| IndexError::TooLarge)?);
                if let Some(slot) = renumbered.get_mut(old as usize) {
                    *slot = u32::try_from(at).map_err(|_| IndexError::TooLarge)?;
                }
            }
            for entry in &mut entries {
                if let Some(number) = renumbered.get(entry.words[field] as usize) {
                    entry.words[field] = *number;
                }
            }
            post(words, &entries, field).ok_or(IndexError::TooLarge)?;
        }
        entries.shrink_to_fit();
        Ok(Index { entries, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Triple = (String, String, String, u64);

    fn index(objects: &[Triple]) -> Index {
        let mut builder = IndexBuilder::default();
        for (schema, package, name, len) in objects {
            builder.push(schema, package, name, *len).unwrap();
        }
        builder.finish().unwrap()
    }

    fn query(words: [&str; 3]) -> Query {
        let some = |word: &str| (!word.is_empty()).then(|| word.to_owned());
        Query { schema: some(words[0]), package: some(words[1]), name: some(words[2]) }
    }

    #[test]
    fn answers_in_file_order_and_leaves_out_objects_without_a_schema() {
        let objects: Vec<Triple> = [
            ("olm.package", "", "a", 10),
            ("olm.channel", "a", "stable", 20),
            ("olm.bundle", "a", "a.v1", 30),
            ("", "a", "a.v1", 40),
            ("olm.bundle", "a", "a.v2", 50),
            ("olm.bundle", "b", "a.v1", 60),
        ]
        .map(|(schema, package, name, len)| (schema.into(), package.into(), name.into(), len))
        .into();
        let index = index(&objects);
        for (words, want) in [
            (["", "", ""], vec![(0, 210)]),
            (["olm.package", "", ""], vec![(0, 10)]),
            (["olm.bundle", "", ""], vec![(30, 30), (100, 110)]),
            (["", "a", ""], vec![(10, 50), (100, 50)]),
            (["", "", "a.v1"], vec![(30, 30), (150, 60)]),
            (["olm.bundle", "a", "a.v1"], vec![(30, 30)]),
            (["olm.package", "a", ""], vec![]),
            (["nothing", "", ""], vec![]),
            (["OLM.PACKAGE", "", ""], vec![]),
        ] {
            let got: Vec<_> = index.sections(&query(words)).iter().map(|s| (s.start, s.len)).collect();
            assert_eq!(got, want, "{words:?}");
        }
        assert_eq!(index.schemas().collect::<Vec<_>>(), ["olm.bundle", "olm.channel", "olm.package"]);
    }

    #[test]
    fn damaged_files_are_refused() {
        let bytes = index(&[("s".into(), "p".into(), "n".into(), 5)]).encode();
        assert_eq!(Index::decode(b"", 5), Err(IndexError::Foreign));
        for cut in 8..bytes.len() {
            assert!(Index::decode(&bytes[..cut], 5).is_err(), "cut at {cut}");
        }
        assert!(Index::decode(&bytes, 4).is_err(), "a section passes the end of the catalog");
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan_and_survives_the_file(
            objects in prop::collection::vec(("[ab]?", "[ab]?", "[ab]?", 1_u64..9), 0..40),
            words in ("[abc]?", "[abc]?", "[abc]?"),
        ) {
            let built = index(&objects);
            let size = objects.iter().map(|object| object.3).sum();
            let read = Index::decode(&built.encode(), size).unwrap();
            prop_assert_eq!(&read, &built);
            let query = query([&words.0, &words.1, &words.2]);
            let mut at = 0;
            let mut want = Vec::new();
            let fits = |want: &str, has: &str| want.is_empty() || want == has;
            for (schema, package, name, len) in &objects {
                let unfiltered = query.is_empty();
                if unfiltered || (!schema.is_empty() && fits(&words.0, schema) && fits(&words.1, package) && fits(&words.2, name)) {
                    join(&mut want, Section { start: at, len: *len });
                }
                at += len;
            }
            prop_assert_eq!(read.sections(&query), want);
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Index::decode(&[MAGIC.as_slice(), &bytes].concat(), 1000);
        }
    }
}
