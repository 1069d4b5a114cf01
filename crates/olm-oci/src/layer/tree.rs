//! The entries that remain of each path when layers are read from the top down.
//!
//! A path is decided by the first (uppermost) layer that names it; directories merge; a whiteout hides a path from the
//! layers beneath its own, an opaque mark everything inside its directory (rule: catalogd §5.7 and the OCI image spec:
//! whiteouts never touch their own layer). Within one layer the later entry replaces the earlier. Links are remembered
//! and resolved when all layers have been read. No file is touched here.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use super::selection::ancestors;
use crate::error::{ImageError, check_limit};

/// Bytes of all remembered names and link targets together, and of those of all selected entries.
const MAX_NAMES: usize = 8 << 20;
/// Links followed for one path.
const MAX_HOPS: usize = 40;
/// Work of following all links together: a step is one component, or 32 bytes of its path.
const MAX_LINK_STEPS: u64 = 2_000_000;

const WHITEOUT: &str = ".wh.";
const AUFS: &str = ".wh..wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    /// `given`: the visitor has it (files above the selection, devices and named pipes are only obstacles); `size` in bytes.
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

#[derive(Debug)]
struct Placed {
    /// The layer that decided about the path.
    layer: u32,
    /// The last layer that placed something beneath it.
    beneath: Option<u32>,
    node: Node,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Placed>,
    hidden: HashSet<String>,
    opaque: HashSet<String>,
    /// Whiteouts of the layer being read; they come into force at its end.
    hiding: Vec<String>,
    emptying: Vec<String>,
    /// Files of the layer being read that upper layers replaced.
    skipped: HashSet<String>,
    layer: u32,
    /// Bytes of remembered names.
    names: usize,
    /// Bytes of the names of all entries so far.
    names_read: usize,
    link_steps: u64,
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
            Some(Placed { node: Node::Directory, .. }) if node == Node::Directory => {
                return Ok(Placement::Take);
            }
            Some(upper) if upper.layer < self.layer => {
                if upper.node == Node::Directory {
                    // this layer replaced a directory beneath it, before an upper layer made a new one
                    if upper.beneath == Some(self.layer) {
                        return Err(ImageError::Content(format!(
                            "entry {path:?} is both a directory and none in one layer"
                        )));
                    }
                    self.remember(path.len())?;
                    self.emptying.push(path.to_owned());
                }
                return self.skip(path, &node);
            }
            Some(before) => {
                if node == Node::Directory && before.node != Node::Directory {
                    // what was no directory for a moment has removed the directory beneath it
                    self.remember(path.len())?;
                    self.emptying.push(path.to_owned());
                }
                self.remove(path);
                Placement::Replace
            }
        };
        let layer = self.layer;
        for above in ancestors(path) {
            if let Some(placed) = self.nodes.get_mut(above) {
                placed.beneath = Some(layer);
                continue;
            }
            self.remember(above.len())?;
            self.nodes
                .insert(above.to_owned(), Placed { layer, beneath: Some(layer), node: Node::Directory });
        }
        let target = match &node {
            Node::Symlink(target) | Node::HardLink(target) => target.len(),
            Node::Directory | Node::File { .. } => 0,
        };
        self.remember(path.len() + target)?;
        self.nodes.insert(path.to_owned(), Placed { layer, beneath: None, node });
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
            let Some(placed) = self.nodes.get(above) else { continue };
            match placed.node {
                Node::Directory => {}
                _ if placed.layer < self.layer => return Ok(true),
                Node::File { .. } => {
                    return Err(ImageError::Content(format!(
                        "entry {path:?} lies beneath the file {above:?}"
                    )));
                }
                Node::Symlink(_) | Node::HardLink(_) => {
                    return Err(ImageError::Content(format!(
                        "entry {path:?} lies beneath the link {above:?}"
                    )));
                }
            }
        }
        Ok(false)
    }

    fn remove(&mut self, path: &str) {
        self.nodes.remove(path);
        let beneath = format!("{path}/");
        let names = self.nodes.range::<str, _>((Bound::Excluded(beneath.as_str()), Bound::Unbounded));
        let gone: Vec<String> =
            names.map(|(name, _)| name).take_while(|name| name.starts_with(&beneath)).cloned().collect();
        for name in gone {
            self.nodes.remove(&name);
        }
    }

    /// Counts the name and link target of an entry, placed or not: each costs work.
    pub(crate) fn count_name(&mut self, bytes: usize) -> Result<(), ImageError> {
        self.names_read += bytes;
        check_names(self.names_read)
    }

    fn remember(&mut self, bytes: usize) -> Result<(), ImageError> {
        self.names += bytes + 1;
        check_names(self.names)
    }

    /// What `target` is in the layer being read: the node, or that an upper layer replaced it.
    pub(crate) fn in_this_layer(&self, target: &str) -> Result<Option<&Node>, ImageError> {
        if self.skipped.contains(target) {
            return Err(ImageError::Content(format!(
                "a hard link refers to {target:?}, which a later layer replaced"
            )));
        }
        Ok(match self.nodes.get(target) {
            Some(placed) if placed.layer == self.layer => Some(&placed.node),
            _ => None,
        })
    }

    /// All links, in path order.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        self.nodes
            .iter()
            .filter(|(_, placed)| matches!(placed.node, Node::Symlink(_) | Node::HardLink(_)))
            .map(|(path, _)| path.as_str())
    }

    /// Follows the link at `path` inside the tree, never out of it.
    pub(crate) fn follow(&mut self, path: &str) -> Result<Lead, ImageError> {
        let mut steps = self.link_steps;
        let lead = self.lead(path, &mut steps);
        self.link_steps = steps;
        check_limit(steps, MAX_LINK_STEPS, "steps", "work of following the links in the image")?;
        Ok(lead)
    }

    fn lead(&self, path: &str, steps: &mut u64) -> Lead {
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
            *steps += 1 + next.len() as u64 / 32;
            match self.nodes.get(&next).map(|placed| &placed.node) {
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

fn check_names(bytes: usize) -> Result<(), ImageError> {
    check_limit(bytes as u64, MAX_NAMES as u64, "bytes", "length of all names in the image")
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
        // each leads to the one before
        tree.place("chain/0", FILE).unwrap();
        for at in 0..=MAX_HOPS {
            tree.place(&format!("chain/{}", at + 1), Node::Symlink(at.to_string())).unwrap();
        }
        for (path, want) in [
            ("chain/40", "chain/0"),
            ("chain/41", "more than 40 links"),
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
            match tree.follow(path).unwrap() {
                Lead::File(file, _) => assert_eq!(file, want, "{path}"),
                Lead::Nowhere(why) => assert!(why.contains(want), "{path}: {why}"),
            }
        }
    }

    /// Work that does not grow with the entries beside or beneath a path: without that this takes hours.
    #[test]
    fn tree_replaces_paths_beside_many_others() {
        const MANY: usize = 30_000;
        let begun = std::time::Instant::now();
        let check_time = || assert!(begun.elapsed().as_secs() < 15, "not done after 15 s");
        let mut tree = Tree::default();
        for at in 0..MANY {
            tree.place(&format!("d/a.{at}"), FILE).unwrap();
        }
        for _ in 0..MANY {
            tree.place("d/a", FILE).unwrap();
            check_time();
        }
        tree.descend();
        for _ in 0..MANY {
            assert_eq!(tree.place("d", FILE).unwrap(), Placement::Skip);
            check_time();
        }
        let mut tree = Tree::default();
        tree.place("d/x", FILE).unwrap();
        tree.descend();
        tree.place("d/y", FILE).unwrap();
        let error = tree.place("d", FILE).unwrap_err().to_string();
        assert_eq!(error, r#"entry "d" is both a directory and none in one layer"#);
    }

    #[test]
    fn tree_limits_names_targets_and_link_steps() {
        let target = Node::Symlink("t".repeat(4_000));
        let mut tree = Tree::default();
        let placed =
            (0..10_000).map(|at| tree.place(&format!("l{at}"), target.clone())).take_while(Result::is_ok);
        assert!((2_000..2_100).contains(&placed.count()), "targets count");

        let mut tree = Tree::default();
        let counted = (0..10_000).map(|_| tree.count_name(4_096)).take_while(Result::is_ok);
        assert_eq!(counted.count(), MAX_NAMES / 4_096, "names that are placed nowhere count");

        let mut tree = Tree::default();
        tree.place("f", FILE).unwrap();
        for at in 0..30 {
            let target = if at == 0 { "f".to_owned() } else { format!("./{}l{}", "x/../".repeat(8), at - 1) };
            tree.place(&format!("l{at}"), Node::Symlink(target)).unwrap();
        }
        tree.place("x/y", FILE).unwrap();
        let followed = (0..20_000).map(|_| tree.follow("l29")).take_while(Result::is_ok).count();
        assert!((1_000..10_000).contains(&followed), "{followed}");
        let error = tree.follow("l0").unwrap_err().to_string();
        assert_eq!(error, "work of following the links in the image exceeds the limit of 2000000 steps");
    }
}
