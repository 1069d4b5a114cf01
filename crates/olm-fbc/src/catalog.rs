//! A whole catalog in memory: its `catalog.jsonl` and the index over it.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use olm_yaml::Position;

use crate::{
    FileError, FilePosition, FileWarning, Finding, Index, Ingest, IngestError, IngestLimits, Meta,
    PackageContents, PackageLimitError, Query,
    ingest::{Ingested, ObjectPosition},
};

/// Label of a catalog image with the folder of the catalog in the image.
pub const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalog {
    jsonl: Vec<u8>,
    pub index: Index,
    /// Files that were left out or look wrong.
    pub warnings: Vec<FileWarning>,
    /// Files in walk order, each with the number of the objects in it and those before it.
    files: Vec<(String, usize)>,
    positions: Vec<ObjectPosition>,
}

/// Reads files given as (path, bytes), in any order.
///
/// # Errors
/// As [`Ingest::finish`].
pub fn load_files<P, B>(
    files: impl IntoIterator<Item = (P, B)>,
    limits: IngestLimits,
) -> Result<Catalog, IngestError>
where
    P: AsRef<str>,
    B: AsRef<[u8]>,
{
    let (catalog, problems) = load_files_leniently(files, limits)?;
    if problems.is_empty() { Ok(catalog) } else { Err(IngestError::Files(problems)) }
}

/// As [`load_files`], but files that do not decode are reported beside what could be read.
///
/// # Errors
/// A limit is reached.
pub fn load_files_leniently<P, B>(
    files: impl IntoIterator<Item = (P, B)>,
    limits: IngestLimits,
) -> Result<(Catalog, Vec<FileError>), IngestError>
where
    P: AsRef<str>,
    B: AsRef<[u8]>,
{
    let mut ingest = Ingest::new(Vec::new(), limits);
    for (path, bytes) in files {
        ingest.file(path.as_ref(), &mut bytes.as_ref())?;
    }
    let (ingested, problems) = ingest.finish_all()?;
    Ok((Catalog::from_ingested(ingested)?, problems))
}

/// Reads a catalog directory (fbc §2). The one place of this crate that opens files; symbolic links are
/// followed to files inside the directory only.
///
/// # Errors
/// As [`Ingest::finish`]; a file that cannot be opened is [`IngestError::Read`].
pub fn load_dir(root: &Path, limits: IngestLimits) -> Result<Catalog, IngestError> {
    let (catalog, problems) = load_dir_leniently(root, limits)?;
    if problems.is_empty() { Ok(catalog) } else { Err(IngestError::Files(problems)) }
}

/// As [`load_dir`], but files that do not decode are reported beside what could be read.
///
/// # Errors
/// The directory or a file cannot be read, or a limit is reached.
pub fn load_dir_leniently(
    root: &Path,
    limits: IngestLimits,
) -> Result<(Catalog, Vec<FileError>), IngestError> {
    let failed =
        |path: &Path, source: io::Error| IngestError::Read { path: path.display().to_string(), source };
    let root = root.canonicalize().map_err(|source| failed(root, source))?;
    if !root.is_dir() {
        return Err(failed(&root, io::ErrorKind::NotADirectory.into()));
    }
    let mut ingest = Ingest::new(Vec::new(), limits);
    let mut pending: Vec<PathBuf> = vec![root.clone()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).map_err(|source| failed(&path, source))?;
        if metadata.is_dir() {
            let children = fs::read_dir(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let mut children: Vec<PathBuf> =
                children.map_err(|source| failed(&path, source))?.iter().map(fs::DirEntry::path).collect();
            children.sort();
            pending.extend(children.into_iter().rev());
            continue;
        }
        let relative = path.strip_prefix(&root).unwrap_or(&path);
        let name = relative.to_str().ok_or_else(|| IngestError::Path(relative.display().to_string()))?;
        let target = path.canonicalize().map_err(|source| failed(relative, source))?;
        let outside =
            || io::Error::new(io::ErrorKind::PermissionDenied, "the link leads out of the catalog directory");
        if !target.starts_with(&root) {
            return Err(failed(relative, outside()));
        }
        let special = || io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a directory");
        let kind = fs::metadata(&target).map_err(|source| failed(relative, source))?;
        if kind.is_dir() {
            return Err(failed(relative, io::ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Err(failed(relative, special()));
        }
        let mut file = fs::File::open(&target).map_err(|source| failed(relative, source))?;
        ingest.file(name, &mut file as &mut dyn Read)?;
    }
    let (ingested, problems) = ingest.finish_all()?;
    Ok((Catalog::from_ingested(ingested)?, problems))
}

impl Catalog {
    /// What an [`Ingest`] into a buffer came to.
    ///
    /// # Errors
    /// [`IngestError::Write`] for a buffer that is shorter than what was written to it.
    pub fn from_ingested(ingested: Ingested<Vec<u8>>) -> Result<Self, IngestError> {
        let (mut files, positions) = ingested.origins();
        let mut objects = 0;
        for (_, count) in &mut files {
            objects += *count;
            *count = objects;
        }
        let (index, warnings) = (ingested.index.clone(), ingested.warnings.clone());
        let jsonl = if ingested.in_order() {
            ingested.into_spool()
        } else {
            let mut jsonl = Vec::new();
            let mut spool = io::Cursor::new(ingested.spool());
            ingested.emit(&mut spool, &mut jsonl).map_err(IngestError::Write)?;
            jsonl
        };
        Ok(Self { jsonl, index, warnings, files, positions })
    }

    /// Takes in a `catalog.jsonl`, as `/all` serves it.
    ///
    /// # Errors
    /// It does not decode.
    pub fn from_jsonl(jsonl: &[u8], limits: IngestLimits) -> Result<Self, IngestError> {
        load_files([("catalog.jsonl", jsonl)], limits)
    }

    /// The content, one object a line.
    pub fn jsonl(&self) -> &[u8] {
        &self.jsonl
    }

    /// The objects that a query wants, in catalog order.
    pub fn find<'a>(&'a self, query: &Query<'_>) -> impl Iterator<Item = Meta> + 'a {
        let found: Vec<std::ops::Range<u64>> =
            self.index.find(query).iter().map(|object| object.range()).collect();
        found.into_iter().filter_map(|range| Meta::parse(self.bytes(&range)).ok())
    }

    fn bytes(&self, range: &std::ops::Range<u64>) -> &[u8] {
        self.jsonl.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// Names of the packages, sorted.
    pub fn packages(&self) -> Vec<&str> {
        self.index.packages()
    }

    pub fn package_lines(&self, package: &str) -> impl Iterator<Item = &[u8]> {
        let sections = self.index.package_sections(package);
        sections.into_iter().flat_map(|section| {
            let bytes = self.jsonl.get(section.start as usize..section.end as usize).unwrap_or_default();
            bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
        })
    }

    /// One package, decoded.
    ///
    /// # Errors
    /// As [`PackageContents::from_lines`].
    pub fn package(&self, package: &str) -> Result<(PackageContents, Vec<Finding>), PackageLimitError> {
        PackageContents::from_lines(package, self.package_lines(package))
    }

    /// Where an object begins; `at` counts the objects in catalog order.
    pub(crate) fn position(&self, at: usize) -> Option<FilePosition> {
        let position = self.positions.get(at)?;
        let (path, _) = self.files.get(self.files.partition_point(|(_, end)| *end <= at))?;
        let path = path.clone();
        Some(FilePosition { path, line: position.line.into(), column: Some(position.column.into()) })
    }

    /// The object that a position in a file belongs to: the last that begins before it.
    pub(crate) fn object_at(&self, path: &str, position: Position) -> Option<usize> {
        let file = self.files.iter().position(|(file, _)| file == path)?;
        let first = file.checked_sub(1).and_then(|before| self.files.get(before)).map_or(0, |(_, end)| *end);
        let objects = self.positions.get(first..self.files.get(file)?.1)?;
        let desired = ObjectPosition::from(position);
        let after = objects.partition_point(|object| *object <= desired);
        Some(first + after.checked_sub(1)?)
    }
}
