//! The entries that remain of each path when layers are read from the top down.
//!
//! A path is decided by the first (uppermost) layer that names it; directories merge; a whiteout hides a path from the
//! layers beneath its own, an opaque mark everything inside its directory (rule: catalogd §5.7 and the OCI image spec:
//! whiteouts never touch their own layer). Within one layer the later entry replaces the earlier. Links are remembered
//! and resolved when all layers have been read. No file is touched here.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use super::selection::{ancestors, is_beneath};
use crate::error::{ImageError, check_limit};

/// Bytes of all remembered names together.
const MAX_NAMES: usize = 32 << 20;
/// Links followed for one path.
const MAX_HOPS: usize = 40;

const WHITEOUT: &str = ".wh.";
const AUFS: &str = ".wh..wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    /// `given`: the visitor has it (files above the selection are only obstacles); `size` in bytes.
    File {
        given: bool,
        size: u64,
    },
    Symlink(String),
    /// A hard link whose target has not been read in its layer.
    HardLink(String),
}

/// The decision about an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// An upper layer has decided about this path.
    Skip,
    /// The entry is placed.
    Take,
    /// The entry is placed, and what the visitor got before for this path (and beneath) is no longer valid.
    Replace,
}

/// The target of a link in the finished tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    File(String, u64),
    /// The error message for the author of the image.
    Nowhere(String),
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, (u32, Node)>,
    hidden: HashSet<String>,
    opaque: HashSet<String>,
    /// Whiteouts of the layer being read; they come into force at its end.
    hiding: Vec<String>,
    emptying: Vec<String>,
    /// Files of the layer being read that upper layers replaced.
    skipped: HashSet<String>,
    layer: u32,
    names: usize,
}

/// A whiteout entry, by its base name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Whiteout {
    Hides(String),
    Empties(String),
    /// Bookkeeping of an old storage driver.
    Ignored,
}

/// The whiteout that `path` is, if it is one.
pub(crate) fn whiteout(path: &str) -> Result<Option<Whiteout>, ImageError> {
    let (directory, base) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(name) = base.strip_prefix(WHITEOUT) else { return Ok(None) };
    if base == OPAQUE {
        return Ok(Some(Whiteout::Empties(directory.to_owned())));
    }
    if base.starts_with(AUFS) {
        return Ok(Some(Whiteout::Ignored));
    }
    if matches!(name, "" | "." | "..") {
        return Err(ImageError::Content(format!("invalid whiteout name: {path:?}")));
    }
    Ok(Some(Whiteout::Hides(join(directory, name))))
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

impl Tree {
    /// Continues with the next lower layer.
    pub(crate) fn descend(&mut self) {
        self.hidden.extend(self.hiding.drain(..));
        self.opaque.extend(self.emptying.drain(..));
        self.skipped.clear();
        self.layer += 1;
    }

    /// Records a whiteout. Like any entry, it implies its directory.
    pub(crate) fn add_whiteout(&mut self, whiteout: Whiteout) -> Result<(), ImageError> {
        let (path, directory, list) = match whiteout {
            Whiteout::Hides(path) => {
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
                (path, directory, &mut self.hiding)
            }
            Whiteout::Empties(path) => (path.clone(), path, &mut self.emptying),
            Whiteout::Ignored => return Ok(()),
        };
        let bytes = path.len();
        list.push(path);
        self.remember(bytes)?;
        // anything inside of the directory is covered exactly when the directory's content is
        if !directory.is_empty() && !self.covered(&join(&directory, OPAQUE))? {
            self.place(&directory, Node::Directory)?;
        }
        Ok(())
    }

    /// Puts an entry where the layers above allow it.
    pub(crate) fn place(&mut self, path: &str, node: Node) -> Result<Placement, ImageError> {
        if self.covered(path)? {
            return self.skip(path, &node);
        }
        let placement = match self.nodes.get(path) {
            None => Placement::Take,
            Some((_, Node::Directory)) if node == Node::Directory => return Ok(Placement::Take),
            Some((layer, upper)) if *layer < self.layer => {
                if *upper == Node::Directory {
                    // this layer replaced a directory beneath it, before an upper layer made a new one
                    if self.own_beneath(path) {
                        return Err(ImageError::Content(format!(
                            "entry {path:?} is both a directory and none in one layer"
                        )));
                    }
                    self.remember(path.len())?;
                    self.emptying.push(path.to_owned());
                }
                return self.skip(path, &node);
            }
            Some((_, before)) => {
                if node == Node::Directory && *before != Node::Directory {
                    // what was no directory for a moment has removed the directory beneath it
                    self.remember(path.len())?;
                    self.emptying.push(path.to_owned());
                }
                self.remove(path);
                Placement::Replace
            }
        };
        for above in ancestors(path) {
            if !self.nodes.contains_key(above) {
                self.remember(above.len())?;
                self.nodes.insert(above.to_owned(), (self.layer, Node::Directory));
            }
        }
        self.remember(path.len())?;
        self.nodes.insert(path.to_owned(), (self.layer, node));
        Ok(placement)
    }

    fn skip(&mut self, path: &str, node: &Node) -> Result<Placement, ImageError> {
        if matches!(node, Node::File { .. }) {
            self.remember(path.len())?;
            self.skipped.insert(path.to_owned());
        }
        Ok(Placement::Skip)
    }

    /// Has an upper layer hidden `path`, by itself or with a directory above it?
    fn covered(&self, path: &str) -> Result<bool, ImageError> {
        if self.opaque.contains("") || self.hidden.contains(path) {
            return Ok(true);
        }
        for above in ancestors(path) {
            if self.hidden.contains(above) || self.opaque.contains(above) {
                return Ok(true);
            }
            match self.nodes.get(above) {
                None | Some((_, Node::Directory)) => {}
                Some((layer, _)) if *layer < self.layer => return Ok(true),
                Some((_, Node::File { .. })) => {
                    return Err(ImageError::Content(format!(
                        "entry {path:?} lies beneath the file {above:?}"
                    )));
                }
                Some((_, Node::Symlink(_) | Node::HardLink(_))) => {
                    return Err(ImageError::Content(format!(
                        "entry {path:?} lies beneath the link {above:?}"
                    )));
                }
            }
        }
        Ok(false)
    }

    fn remove(&mut self, path: &str) {
        let beneath = format!("{path}/");
        let gone: Vec<String> = self
            .nodes
            .range::<str, _>((Bound::Included(path), Bound::Unbounded))
            .take_while(|(name, _)| {
                name.as_str() == path || name.as_str() <= beneath.as_str() || name.starts_with(&beneath)
            })
            .filter(|(name, _)| is_beneath(name, path))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.nodes.remove(&name);
        }
    }

    /// Has the layer being read put something beneath `path`?
    fn own_beneath(&self, path: &str) -> bool {
        let beneath = format!("{path}/");
        self.nodes
            .range::<str, _>((Bound::Excluded(beneath.as_str()), Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(&beneath))
            .any(|(_, (layer, _))| *layer == self.layer)
    }

    fn remember(&mut self, bytes: usize) -> Result<(), ImageError> {
        self.names += bytes + 1;
        check_limit(self.names as u64, MAX_NAMES as u64, "bytes", "names in the image")
    }

    /// What `target` is in the layer being read: the node, or that an upper layer replaced it.
    pub(crate) fn in_this_layer(&self, target: &str) -> Result<Option<&Node>, ImageError> {
        if self.skipped.contains(target) {
            return Err(ImageError::Content(format!(
                "a hard link refers to {target:?}, which a later layer replaced"
            )));
        }
        Ok(match self.nodes.get(target) {
            Some((layer, node)) if *layer == self.layer => Some(node),
            _ => None,
        })
    }

    /// All links, in path order.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        self.nodes
            .iter()
            .filter(|(_, (_, node))| matches!(node, Node::Symlink(_) | Node::HardLink(_)))
            .map(|(path, _)| path.as_str())
    }

    /// Follows the link at `path` inside the tree, never out of it.
    pub(crate) fn follow(&self, path: &str) -> Lead {
        let mut todo: Vec<String> = vec![path.to_owned()];
        todo = todo.iter().flat_map(|path| path.rsplit('/').map(str::to_owned)).collect();
        let mut at = String::new();
        let mut hops = 0;
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    if at.is_empty() {
                        return Lead::Nowhere(format!("link {path:?} leads out of the image"));
                    }
                    at.truncate(at.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let next = join(&at, &part);
            match self.nodes.get(&next).map(|(_, node)| node) {
                Some(Node::Symlink(target)) => {
                    hops += 1;
                    if target.starts_with('/') {
                        at.clear();
                    }
                    todo.extend(target.rsplit('/').map(str::to_owned));
                }
                Some(Node::HardLink(target)) => {
                    hops += 1;
                    at.clear();
                    todo.extend(target.rsplit('/').map(str::to_owned));
                }
                Some(Node::File { given: true, size }) if todo.is_empty() => return Lead::File(next, *size),
                Some(Node::Directory) => at = next,
                Some(Node::File { .. }) | None => {
                    return Lead::Nowhere(format!(
                        "link {path:?} points to {next:?}, which is not one of the unpacked files"
                    ));
                }
            }
            if hops > MAX_HOPS {
                return Lead::Nowhere(format!("link {path:?} leads through more than {MAX_HOPS} links"));
            }
        }
        Lead::Nowhere(format!("link {path:?} points to a directory: {at:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Node = Node::File { given: true, size: 1 };

    #[test]
    fn tree_prefers_upper_layer() {
        let mut tree = Tree::default();
        assert_eq!(tree.place("a/x", FILE).unwrap(), Placement::Take);
        tree.add_whiteout(whiteout("a/.wh.gone").unwrap().unwrap()).unwrap();
        tree.add_whiteout(whiteout("b/.wh..wh..opq").unwrap().unwrap()).unwrap();
        assert_eq!(tree.place("a/gone", FILE).unwrap(), Placement::Take, "own layer is not touched");
        assert_eq!(tree.place("b/new", FILE).unwrap(), Placement::Take);
        assert_eq!(tree.place("dir", FILE).unwrap(), Placement::Take);
        tree.descend();
        for (path, node, want) in [
            ("a/x", FILE, Placement::Skip),
            ("a", FILE, Placement::Skip),
            ("a/y", FILE, Placement::Take),
            ("a", Node::Directory, Placement::Take),
            ("a/gone", FILE, Placement::Skip),
            ("b/old", FILE, Placement::Skip),
            ("b/new", FILE, Placement::Skip),
            ("dir/inner", FILE, Placement::Skip),
            ("c", FILE, Placement::Take),
            ("c", FILE, Placement::Replace),
        ] {
            assert_eq!(tree.place(path, node).unwrap(), want, "{path}");
        }
    }

    #[test]
    fn tree_file_replaces_directory_of_its_layer() {
        let mut tree = Tree::default();
        for path in ["a/b/c", "a/b.d", "a/b!", "a/bc"] {
            tree.place(path, FILE).unwrap();
        }
        assert_eq!(tree.place("a/b", FILE).unwrap(), Placement::Replace);
        assert!(tree.in_this_layer("a/b/c").unwrap().is_none());
        for path in ["a/b.d", "a/b!", "a/bc", "a/b"] {
            assert!(tree.in_this_layer(path).unwrap().is_some(), "{path}");
        }
        let error = tree.place("a/b/c", FILE).unwrap_err().to_string();
        assert_eq!(error, r#"entry "a/b/c" lies beneath the file "a/b""#);
    }

    #[test]
    fn whiteout_names_are_parsed() {
        for (path, want) in [
            ("a/.wh.b", Some(Whiteout::Hides("a/b".into()))),
            (".wh.configs", Some(Whiteout::Hides("configs".into()))),
            (".wh..wh..opq", Some(Whiteout::Empties(String::new()))),
            ("a/.wh..wh.plnk", Some(Whiteout::Ignored)),
            ("a/.wh", None),
            ("a/x.wh.y", None),
        ] {
            assert_eq!(whiteout(path).unwrap(), want, "{path}");
        }
        for path in [".wh.", "a/.wh..", "a/.wh..."] {
            assert!(whiteout(path).is_err(), "{path}");
        }
    }

    #[test]
    fn tree_links_stay_inside() {
        let mut tree = Tree::default();
        tree.place("c/real", FILE).unwrap();
        tree.place("c/sub/deep", FILE).unwrap();
        for (path, target) in [
            ("c/rel", "real"),
            ("c/up", "../c/real"),
            ("c/abs", "/c/real"),
            ("c/twice", "rel"),
            ("c/dir", "sub"),
            ("c/through", "dir/deep"),
            ("c/out", "../../etc/passwd"),
            ("c/absout", "/etc/passwd"),
            ("c/loop", "loop"),
            ("c/under", "real/x"),
        ] {
            tree.place(path, Node::Symlink(target.into())).unwrap();
        }
        for (path, want) in [
            ("c/rel", "c/real"),
            ("c/up", "c/real"),
            ("c/abs", "c/real"),
            ("c/twice", "c/real"),
            ("c/through", "c/sub/deep"),
            ("c/dir", "points to a directory"),
            ("c/out", "leads out of the image"),
            ("c/absout", "not one of the unpacked files"),
            ("c/loop", "more than 40 links"),
            ("c/under", "not one of the unpacked files"),
        ] {
            match tree.follow(path) {
                Lead::File(file, _) => assert_eq!(file, want, "{path}"),
                Lead::Nowhere(why) => assert!(why.contains(want), "{path}: {why}"),
            }
        }
    }
}
