//! Reads layers from the top down and hands every file of the finished tree to a visitor, each once.

pub use std::convert::Infallible;
use std::io::Read;

use super::decompress::Decompressed;
use super::selection::{Selection, clean};
use super::source::{ChunkSource, Verified};
use super::tar::{Archive, Entry, Kind};
use super::tree::{Lead, Node, Placement, Tree, Whiteout, whiteout};
use super::{from_io, to_io};
use crate::error::{Error, ImageError, check_limit};
use crate::limits::Limits;

/// Receives the selected files of an image.
///
/// Layers come from the top down, entries in the order of their tar. A path hidden or replaced by an upper layer is never
/// visited, so there is nothing to undo, with one exception: a tar may name a path twice, then [`Visitor::remove`]
/// is called before the second time. **Nothing is valid until the whole visit has succeeded**: digests are known only
/// at the end of a layer, and a later layer may turn out to be broken.
///
/// Paths are relative, cleaned, UTF-8, without `..`. Directories are not announced; empty ones do not exist here.
pub trait Visitor {
    /// The error with which the visitor gives up.
    type Error;

    /// A regular file of `size` bytes. What is left of `content` is skipped. An error of `content` need not be kept:
    /// the visit fails with the true cause, whatever is returned here.
    ///
    /// # Errors
    /// Ends the visit.
    fn file(&mut self, path: &str, size: u64, content: &mut dyn Read) -> Result<(), Self::Error>;

    /// `path` is another name of what `target` is now: a hard link, or a symbolic link that stays inside. `target` has
    /// been given by [`Visitor::file`] (or is itself such a name).
    ///
    /// # Errors
    /// Ends the visit.
    fn alias(&mut self, path: &str, target: &str) -> Result<(), Self::Error>;

    /// What was given for `path`, and for everything beneath it, no longer counts.
    ///
    /// # Errors
    /// Ends the visit.
    fn remove(&mut self, path: &str) -> Result<(), Self::Error>;

    /// The link at `path`, which is selected, leads to none of the files; `why` is the error message. Returns whether the
    /// visitor takes care of that; else the visit fails.
    ///
    /// # Errors
    /// Ends the visit.
    fn broken_link(&mut self, _path: &str, _why: &str) -> Result<bool, Self::Error> {
        Ok(false)
    }
}

/// The error that ended a visit.
#[derive(Debug)]
pub enum VisitError<E> {
    /// The image, the network or the disk.
    Pull(Error),
    /// The visitor gave up.
    Visitor(E),
}

impl<E> From<Error> for VisitError<E> {
    fn from(error: Error) -> Self {
        Self::Pull(error)
    }
}

impl VisitError<Infallible> {
    /// The only possible content.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::Pull(error) => error,
            Self::Visitor(never) => match never {},
        }
    }
}

impl VisitError<ImageError> {
    /// A visitor that writes files fails with the same type of error as the image.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::Pull(error) => error,
            Self::Visitor(cause) => Error::Apply(cause),
        }
    }
}

enum Stop<E> {
    Image(ImageError),
    Visitor(E),
}

impl<E> From<ImageError> for Stop<E> {
    fn from(cause: ImageError) -> Self {
        Self::Image(cause)
    }
}

/// The running totals of one image and its visitor.
pub(crate) struct Applier<V> {
    visitor: V,
    selection: Selection,
    limits: Limits,
    tree: Tree,
    entries: u64,
    /// Bytes of extended headers.
    extended: u64,
    selected_entries: u64,
    selected_bytes: u64,
    unpacked: u64,
}

impl<V: Visitor> Applier<V> {
    pub(crate) fn new(visitor: V, selection: Selection, limits: Limits) -> Self {
        Self {
            visitor,
            selection,
            limits,
            tree: Tree::default(),
            entries: 0,
            extended: 0,
            selected_entries: 0,
            selected_bytes: 0,
            unpacked: 0,
        }
    }

    /// Reads one layer to its last byte. The uppermost layer comes first.
    pub(crate) fn layer<S: ChunkSource>(
        &mut self,
        index: usize,
        blob: Verified<S>,
    ) -> Result<(), VisitError<V::Error>> {
        let name_step = |cause: ImageError| match cause {
            // what the registry did, not what the layer contains
            ImageError::Size { .. }
            | ImageError::Digest { .. }
            | ImageError::Network { .. }
            | ImageError::Stalled { .. }
            | ImageError::Mirrors { .. }
            | ImageError::Status { .. } => Error::Copy(cause),
            ImageError::Unsupported(_) => Error::ReadLayer { index, cause },
            cause => Error::ApplyLayer { index, cause },
        };
        self.read(blob).map_err(|stop| match stop {
            Stop::Image(cause) => VisitError::Pull(name_step(cause)),
            Stop::Visitor(error) => VisitError::Visitor(error),
        })?;
        self.tree.descend();
        Ok(())
    }

    fn read<S: ChunkSource>(&mut self, blob: Verified<S>) -> Result<(), Stop<V::Error>> {
        let budget = self.limits.unpacked_bytes.saturating_sub(self.unpacked);
        let stream = Decompressed::new(blob, &self.limits, budget)?;
        let left = self.limits.entries.saturating_sub(self.entries);
        let extended = (self.extended, self.limits.extended_bytes);
        let mut archive = Archive::new(stream, self.limits.name_bytes, left, extended);
        let read = self.entries_of(&mut archive);
        self.entries += archive.entries();
        self.extended = archive.extended();
        let mut stream = archive.into_inner();
        let read = match read {
            // Whether damaged data or what was unpacked of it is met first depends on the pieces in which the bytes arrive. The
            // damage is reported either way.
            Err(Stop::Image(ImageError::Content(problem))) => {
                let rest = std::io::copy(&mut stream, &mut std::io::sink()).map_err(from_io);
                Err(Stop::Image(rest.err().unwrap_or(ImageError::Content(problem))))
            }
            read => read,
        };
        self.unpacked = self.unpacked.saturating_add(stream.produced());
        let blob = stream.into_blob();
        match read {
            Ok(()) => Ok(blob.finish()?),
            // the bytes are not those of the manifest: the copy is damaged, the image may be valid, and a retry can help
            Err(
                stop @ (Stop::Image(
                    ImageError::Content(_) | ImageError::UnexpectedEof | ImageError::Limit { .. },
                )
                | Stop::Visitor(_)),
            ) => Err(blob.finish().map_or_else(Stop::Image, |()| stop)),
            Err(stop) => Err(stop),
        }
    }

    fn entries_of<R: Read>(&mut self, archive: &mut Archive<R>) -> Result<(), Stop<V::Error>> {
        while let Some(entry) = archive.next()? {
            self.entry(&entry, archive)?;
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: &Entry, archive: &mut Archive<R>) -> Result<(), Stop<V::Error>> {
        let name = String::from_utf8_lossy(&entry.name);
        // what leads out of the image is beneath no selected path
        let Some(path) = clean(&name) else { return Ok(()) };
        if let Some(whiteout) = whiteout(&path)? {
            return self.whiteout(whiteout);
        }
        let selected = self.selection.contains(&path) && !path.is_empty();
        if !selected && !self.selection.leads_to(&path) {
            return Ok(());
        }
        self.count()?;
        if path.is_empty() && entry.kind != Kind::Directory {
            return Err(ImageError::Content(format!(
                "entry {name:?} makes something else than a directory of the image's root"
            ))
            .into());
        }
        if std::str::from_utf8(&entry.name).is_err() {
            return Err(ImageError::Content(format!("entry {name:?} has a name that is not UTF-8")).into());
        }
        self.check_name(&name)?;
        self.tree.count_name(name.len() + entry.link.len())?;
        match entry.kind {
            Kind::Directory => {
                if self.tree.place(&path, Node::Directory)? == Placement::Replace {
                    self.visitor.remove(&path).map_err(Stop::Visitor)?;
                }
                Ok(())
            }
            Kind::File => self.file(&path, selected, entry.size, archive),
            Kind::Symlink => {
                let target = self.link_target(&path, &entry.link)?;
                self.put(&path, Node::Symlink(target)).map(|_| ())
            }
            Kind::HardLink => self.hard_link(&path, selected, &entry.link),
            // passed over, but what lower layers have there is hidden
            Kind::CharacterDevice | Kind::BlockDevice | Kind::Fifo => {
                self.put(&path, Node::File { given: false, size: 0 }).map(|_| ())
            }
            Kind::Sparse => Err(ImageError::Unsupported(format!("entry {path:?} is a sparse file")).into()),
            Kind::Other(flag) => {
                Err(ImageError::Unsupported(format!("unhandled tar header type {flag} of entry {path:?}"))
                    .into())
            }
        }
    }

    fn whiteout(&mut self, whiteout: Whiteout) -> Result<(), Stop<V::Error>> {
        let concerns = match &whiteout {
            Whiteout::Hides(path) => self.selection.contains(path) || self.selection.leads_to(path),
            Whiteout::Empties(path) => {
                path.is_empty() || self.selection.contains(path) || self.selection.leads_to(path)
            }
            Whiteout::Ignored => false,
        };
        if concerns {
            self.count()?;
            self.tree.add_whiteout(whiteout)?;
        }
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        path: &str,
        selected: bool,
        size: u64,
        archive: &mut Archive<R>,
    ) -> Result<(), Stop<V::Error>> {
        if !self.put(path, Node::File { given: selected, size })? || !selected {
            return Ok(());
        }
        check_limit(size, self.limits.file_bytes, "bytes", format_args!("file {path:?}"))?;
        self.charge(size)?;
        let mut content = Content { inner: archive, failed: None };
        let done = self.visitor.file(path, size, &mut content);
        match (content.failed, done) {
            (Some(cause), _) => Err(cause.into()),
            (None, Err(error)) => Err(Stop::Visitor(error)),
            (None, Ok(())) => Ok(()),
        }
    }

    fn hard_link(&mut self, path: &str, selected: bool, target: &[u8]) -> Result<(), Stop<V::Error>> {
        let text = self.link_target(path, target)?;
        let Some(target) = clean(&text) else {
            return Err(ImageError::Content(format!("hard link {path:?} leads out of the image")).into());
        };
        if target == path {
            return Err(ImageError::Content(format!("hard link {path:?} points to itself")).into());
        }
        if target.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')) {
            let problem = format!("hard link {path:?} replaces the directory of its target {target:?}");
            // an upper layer may have replaced this name
            let is_taken = self.put(path, Node::HardLink(target))?;
            return if is_taken { Err(ImageError::Content(problem).into()) } else { Ok(()) };
        }
        let node = self.tree.in_this_layer(&target);
        match node {
            Ok(Some(Node::File { given: true, size })) => {
                let size = *size;
                if self.put(path, Node::File { given: selected, size })? && selected {
                    self.charge(size)?;
                    self.visitor.alias(path, &target).map_err(Stop::Visitor)?;
                }
            }
            Ok(Some(Node::Symlink(text))) => {
                let text = text.clone();
                self.put(path, Node::Symlink(text))?;
            }
            Ok(_) => {
                self.put(path, Node::HardLink(target))?;
            }
            Err(cause) => {
                // matters only if no upper layer has decided about this name
                if self.put(path, Node::HardLink(target))? {
                    return Err(cause.into());
                }
            }
        }
        Ok(())
    }

    /// Places a node that is not a directory; `false` when an upper layer has decided.
    fn put(&mut self, path: &str, node: Node) -> Result<bool, Stop<V::Error>> {
        match self.tree.place(path, node)? {
            Placement::Skip => Ok(false),
            Placement::Take => Ok(true),
            Placement::Replace => {
                self.visitor.remove(path).map_err(Stop::Visitor)?;
                Ok(true)
            }
        }
    }

    fn link_target(&self, path: &str, target: &[u8]) -> Result<String, ImageError> {
        let text = std::str::from_utf8(target)
            .map_err(|_| ImageError::Content(format!("link {path:?} has a target that is not UTF-8")))?;
        self.check_name(text)?;
        Ok(text.to_owned())
    }

    fn check_name(&self, name: &str) -> Result<(), ImageError> {
        let Limits { name_bytes, depth, .. } = self.limits;
        check_limit(name.len() as u64, name_bytes as u64, "bytes", "length of a name in the image")?;
        let components = name.split('/').count() as u64;
        check_limit(components, depth as u64, "components", "depth of a name in the image")
    }

    /// Another name of a file costs as much as the file: a visitor may have to copy it.
    fn charge(&mut self, size: u64) -> Result<(), ImageError> {
        self.selected_bytes = self.selected_bytes.saturating_add(size);
        check_limit(self.selected_bytes, self.limits.selected_bytes, "bytes", "selected content of the image")
    }

    fn count(&mut self) -> Result<(), ImageError> {
        self.selected_entries += 1;
        check_limit(
            self.selected_entries,
            self.limits.selected_entries,
            "entries",
            "number of selected entries",
        )
    }

    /// Resolves the links after the last layer and returns the visitor.
    pub(crate) fn finish(mut self) -> Result<V, VisitError<V::Error>> {
        let links: Vec<String> = self.tree.links().map(str::to_owned).collect();
        for path in &links {
            match self.tree.follow(path).map_err(Error::Apply)? {
                // a link in place of a directory above the selection: the selection is empty there
                Lead::File(..) if !self.selection.contains(path) => {}
                Lead::File(target, size) => {
                    self.charge(size).map_err(Error::Apply)?;
                    self.visitor.alias(path, &target).map_err(VisitError::Visitor)?;
                }
                Lead::Nowhere(why) => {
                    let is_done = self.selection.contains(path)
                        && self.visitor.broken_link(path, &why).map_err(VisitError::Visitor)?;
                    if !is_done {
                        return Err(Error::Apply(ImageError::Content(why)).into());
                    }
                }
            }
        }
        Ok(self.visitor)
    }
}

/// The content of one entry, which records the error of a failed read.
struct Content<'a, R> {
    inner: &'a mut Archive<R>,
    failed: Option<ImageError>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.failed.is_some() {
            return Err(to_io(ImageError::UnexpectedEof));
        }
        match self.inner.read(out) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                let cause = from_io(error);
                let text = cause.to_string();
                self.failed = Some(cause);
                Err(std::io::Error::other(text))
            }
            other => other,
        }
    }
}
