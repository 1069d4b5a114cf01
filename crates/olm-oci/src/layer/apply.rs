//! Reads layers from the top down and hands every file of the finished tree to a visitor, each once.

use std::io::Read;

use super::decompress::Decompressed;
use super::selection::{Selection, clean};
use super::source::{ChunkSource, Verified};
use super::tar::{Archive, Entry, Kind};
use super::tree::{Lead, Node, Place, Tree, Whiteout, whiteout};
use super::{from_io, to_io};
use crate::error::{Error, Fault};
use crate::limits::Limits;

/// Receives the wanted files of an image.
///
/// Layers come from the top down, entries in the order of their tar. A path hidden or replaced by an upper layer is never
/// given, so there is nothing to take back, with one exception: a tar may name a path twice, then [`Visitor::remove`]
/// is called before the second time. **Nothing counts until the whole visit has succeeded**: digests are known only
/// at the end of a layer, and a later layer may turn out to be broken.
///
/// Paths are relative, cleaned, UTF-8, without `..`. Directories are not announced; empty ones do not exist here.
pub trait Visitor {
    /// Why the visitor gives up.
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

    /// The link `path` leads to no file of this visit (`why` says where). `true` leaves it out; `false`, the default,
    /// refuses the image with `why`. It is never followed.
    fn stray_link(&mut self, _path: &str, _why: &str) -> bool {
        false
    }
}

/// Why a visit ended.
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

/// The error of a visitor that never gives up.
pub type Infallible = std::convert::Infallible;

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

impl VisitError<Fault> {
    /// A visitor that writes files fails with the same kind of fault as the image.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::Pull(error) => error,
            Self::Visitor(fault) => Error::Apply(fault),
        }
    }
}

enum Stop<E> {
    Fault(Fault),
    Visitor(E),
}

impl<E> From<Fault> for Stop<E> {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The running totals of one image and its visitor.
pub(crate) struct Applier<V> {
    visitor: V,
    selection: Selection,
    limits: Limits,
    tree: Tree,
    entries: u64,
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
        let name_step = |fault: Fault| match fault {
            // what the registry did, not what the layer contains
            Fault::Size { .. }
            | Fault::Digest { .. }
            | Fault::Network { .. }
            | Fault::Stalled { .. }
            | Fault::Mirrors { .. }
            | Fault::Status { .. } => Error::Copy(fault),
            Fault::Unsupported(_) => Error::ReadLayer { index, fault },
            fault => Error::ApplyLayer { index, fault },
        };
        self.read(blob).map_err(|stop| match stop {
            Stop::Fault(fault) => VisitError::Pull(name_step(fault)),
            Stop::Visitor(error) => VisitError::Visitor(error),
        })?;
        self.tree.descend();
        Ok(())
    }

    fn read<S: ChunkSource>(&mut self, blob: Verified<S>) -> Result<(), Stop<V::Error>> {
        let budget = self.limits.unpacked_bytes.saturating_sub(self.unpacked);
        let stream = Decompressed::new(blob, &self.limits, budget)?;
        let left = self.limits.entries.saturating_sub(self.entries);
        let mut archive = Archive::new(stream, self.limits.name_bytes, left);
        let read = self.entries_of(&mut archive);
        self.entries += archive.entries();
        let mut stream = archive.into_inner();
        let read = match read {
            // Whether damaged data or what was unpacked of it is met first depends on the pieces in which the bytes arrive. The
            // damage is reported either way.
            Err(Stop::Fault(Fault::Content(problem))) => {
                let rest = std::io::copy(&mut stream, &mut std::io::sink()).map_err(from_io);
                Err(Stop::Fault(rest.err().unwrap_or(Fault::Content(problem))))
            }
            read => read,
        };
        self.unpacked = self.unpacked.saturating_add(stream.produced());
        let blob = stream.into_blob();
        match read {
            Ok(()) => Ok(blob.finish()?),
            // what other bytes than the manifest's hold says nothing about the image: the copy is damaged and may come right
            Err(stop @ (Stop::Fault(Fault::Content(_) | Fault::UnexpectedEof) | Stop::Visitor(_))) => {
                Err(blob.finish().map_or_else(Stop::Fault, |()| stop))
            }
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
        let Some(path) = clean(&name) else {
            return Err(Fault::Content(format!("entry {name:?} leads out of the image")).into());
        };
        if let Some(whiteout) = whiteout(&path)? {
            return self.whiteout(whiteout);
        }
        let wanted = self.selection.wants(&path) && !path.is_empty();
        if !wanted && !self.selection.leads_to(&path) {
            return Ok(());
        }
        self.count()?;
        if path.is_empty() && entry.kind != Kind::Directory {
            return Err(Fault::Content(format!(
                "entry {name:?} makes something else than a directory of the image's root"
            ))
            .into());
        }
        if name.starts_with('/') {
            return Err(Fault::Content(format!("entry {name:?} has an absolute name")).into());
        }
        if std::str::from_utf8(&entry.name).is_err() {
            return Err(Fault::Content(format!("entry {name:?} has a name that is not UTF-8")).into());
        }
        self.check_name(&name)?;
        match entry.kind {
            Kind::Directory => {
                if self.tree.place(&path, Node::Directory)? == Place::Replace {
                    self.visitor.remove(&path).map_err(Stop::Visitor)?;
                }
                Ok(())
            }
            Kind::File => self.file(&path, wanted, entry.size, archive),
            Kind::Symlink => {
                let target = self.link_target(&path, &entry.link)?;
                self.put(&path, Node::Symlink(target)).map(|_| ())
            }
            Kind::HardLink => self.hard_link(&path, wanted, &entry.link),
            Kind::CharacterDevice | Kind::BlockDevice => {
                Err(Fault::Content(format!("entry {path:?} is a device")).into())
            }
            Kind::Fifo => Err(Fault::Content(format!("entry {path:?} is a named pipe")).into()),
            Kind::Sparse => Err(Fault::Unsupported(format!("entry {path:?} is a sparse file")).into()),
            Kind::Other(flag) => {
                Err(Fault::Unsupported(format!("unhandled tar header type {flag} of entry {path:?}")).into())
            }
        }
    }

    fn whiteout(&mut self, whiteout: Whiteout) -> Result<(), Stop<V::Error>> {
        let concerns = match &whiteout {
            Whiteout::Hides(path) => self.selection.wants(path) || self.selection.leads_to(path),
            Whiteout::Empties(path) => {
                path.is_empty() || self.selection.wants(path) || self.selection.leads_to(path)
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
        wanted: bool,
        size: u64,
        archive: &mut Archive<R>,
    ) -> Result<(), Stop<V::Error>> {
        if !self.put(path, Node::File { given: wanted, size })? || !wanted {
            return Ok(());
        }
        if size > self.limits.file_bytes {
            let what = format!("file {path:?}");
            return Err(Fault::Limit { what, limit: self.limits.file_bytes, unit: "bytes" }.into());
        }
        self.charge(size)?;
        let mut content = Content { inner: archive, failed: None };
        let done = self.visitor.file(path, size, &mut content);
        match (content.failed, done) {
            (Some(fault), _) => Err(fault.into()),
            (None, Err(error)) => Err(Stop::Visitor(error)),
            (None, Ok(())) => Ok(()),
        }
    }

    fn hard_link(&mut self, path: &str, wanted: bool, target: &[u8]) -> Result<(), Stop<V::Error>> {
        let text = self.link_target(path, target)?;
        let Some(target) = clean(&text) else {
            return Err(Fault::Content(format!("hard link {path:?} leads out of the image")).into());
        };
        if target == path {
            return Err(Fault::Content(format!("hard link {path:?} points to itself")).into());
        }
        if target.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')) {
            let problem = format!("hard link {path:?} replaces the directory of its target {target:?}");
            // an upper layer may have replaced this name
            let is_taken = self.put(path, Node::HardLink(target))?;
            return if is_taken { Err(Fault::Content(problem).into()) } else { Ok(()) };
        }
        let node = self.tree.in_this_layer(&target);
        match node {
            Ok(Some(Node::File { given: true, size })) => {
                let size = *size;
                if self.put(path, Node::File { given: wanted, size })? && wanted {
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
            Err(fault) => {
                // matters only if this name is still wanted
                if self.put(path, Node::HardLink(target))? {
                    return Err(fault.into());
                }
            }
        }
        Ok(())
    }

    /// Places a node that is not a directory; `false` when an upper layer has decided.
    fn put(&mut self, path: &str, node: Node) -> Result<bool, Stop<V::Error>> {
        match self.tree.place(path, node)? {
            Place::Skip => Ok(false),
            Place::Take => Ok(true),
            Place::Replace => {
                self.visitor.remove(path).map_err(Stop::Visitor)?;
                Ok(true)
            }
        }
    }

    fn link_target(&self, path: &str, target: &[u8]) -> Result<String, Fault> {
        let text = std::str::from_utf8(target)
            .map_err(|_| Fault::Content(format!("link {path:?} has a target that is not UTF-8")))?;
        self.check_name(text)?;
        Ok(text.to_owned())
    }

    fn check_name(&self, name: &str) -> Result<(), Fault> {
        let Limits { name_bytes, depth, .. } = self.limits;
        if name.len() > name_bytes {
            let what = "length of a name in the image".into();
            return Err(Fault::Limit { what, limit: name_bytes as u64, unit: "bytes" });
        }
        if name.split('/').count() > depth {
            return Err(Fault::Limit {
                what: "depth of a name in the image".into(),
                limit: depth as u64,
                unit: "components",
            });
        }
        Ok(())
    }

    /// Another name of a file costs as much as the file: a visitor may have to copy it.
    fn charge(&mut self, size: u64) -> Result<(), Fault> {
        self.selected_bytes = self.selected_bytes.saturating_add(size);
        if self.selected_bytes > self.limits.selected_bytes {
            let what = "wanted content of the image".into();
            return Err(Fault::Limit { what, limit: self.limits.selected_bytes, unit: "bytes" });
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.selected_entries += 1;
        if self.selected_entries > self.limits.selected_entries {
            return Err(Fault::Limit {
                what: "number of wanted entries".into(),
                limit: self.limits.selected_entries,
                unit: "entries",
            });
        }
        Ok(())
    }

    /// All layers are read: settles the links and gives the visitor back.
    pub(crate) fn finish(mut self) -> Result<V, VisitError<V::Error>> {
        let links: Vec<String> = self.tree.links().map(str::to_owned).collect();
        for path in &links {
            match self.tree.follow(path) {
                // in place of a directory above what is wanted: then there is nothing of it
                Lead::File(..) if !self.selection.wants(path) => {}
                Lead::File(target, size) => {
                    self.charge(size).map_err(|fault| VisitError::Pull(Error::Apply(fault)))?;
                    self.visitor.alias(path, &target).map_err(VisitError::Visitor)?;
                }
                Lead::Nowhere(why) => {
                    if !self.visitor.stray_link(path, &why) {
                        return Err(VisitError::Pull(Error::Apply(Fault::Content(why))));
                    }
                }
            }
        }
        Ok(self.visitor)
    }
}

/// The content of one entry, remembering why it failed.
struct Content<'a, R> {
    inner: &'a mut Archive<R>,
    failed: Option<Fault>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.failed.is_some() {
            return Err(to_io(Fault::UnexpectedEof));
        }
        match self.inner.read(out) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                let fault = from_io(error);
                let text = fault.to_string();
                self.failed = Some(fault);
                Err(std::io::Error::other(text))
            }
            other => other,
        }
    }
}
