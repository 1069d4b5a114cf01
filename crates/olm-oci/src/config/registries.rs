//! registries.conf, version 2: the locations that a reference is fetched from.
//!
//! Rule: catalogd §5.3 and the format's own manual (containers-registries.conf(5)): the longest matching `prefix` decides
//! (`*.example.com` matches sub-domains; registries are compared in their one spelling, [`canonical_registry`]), mirrors come first and the location itself last, a location
//! that is `blocked` is left out, `insecure` allows plain HTTP and unverified TLS. Drop-in files replace whole tables of the same prefix. Files are read
//! again for every pull. Short names and version 1 files are not supported; references are always complete here.

use std::path::{Path, PathBuf};

use olm_core::{ImageRef, canonical_registry};
use serde::Deserialize;

use super::{if_there, paths_in};
use crate::error::ImageError;

/// The configuration files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistriesFiles {
    /// The main file; a missing one is no error.
    pub file: Option<PathBuf>,
    /// Directories of `*.conf` drop-ins, in order; missing ones are no error.
    pub drop_ins: Vec<PathBuf>,
    /// A last file on top of everything; must exist.
    pub last: Option<PathBuf>,
}

impl RegistriesFiles {
    /// The search order of catalogd §5.3: `$CONTAINERS_REGISTRIES_CONF` alone, else the user's, the system's or the
    /// vendor's file (first found) with all drop-in directories; `$CONTAINERS_REGISTRIES_CONF_OVERRIDE` on top.
    #[must_use]
    pub fn from_env() -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let last = var("CONTAINERS_REGISTRIES_CONF_OVERRIDE");
        if let Some(file) = var("CONTAINERS_REGISTRIES_CONF") {
            return Self { file: Some(file), drop_ins: Vec::new(), last };
        }
        let mut bases = vec![PathBuf::from("/usr/share/containers"), PathBuf::from("/etc/containers")];
        bases.extend(
            var("XDG_CONFIG_HOME")
                .or_else(|| var("HOME").map(|home| home.join(".config")))
                .map(|config| config.join("containers")),
        );
        let file = bases.iter().rev().map(|base| base.join("registries.conf")).find(|file| file.is_file());
        let drop_ins = bases.iter().map(|base| base.join("registries.conf.d")).collect();
        Self { file, drop_ins, last }
    }
}

#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    registry: Vec<Registry>,
    /// The section of version 1 files.
    registries: Option<toml::Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Registry {
    prefix: Option<String>,
    #[serde(default)]
    location: String,
    /// What the prefix is compared as.
    #[serde(skip)]
    scope: Scope,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<Mirror>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Mirror {
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    pull_from_mirror: Option<PullFromMirror>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PullFromMirror {
    All,
    DigestOnly,
    TagOnly,
}

/// A prefix with the registry as references write it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Scope {
    text: String,
    /// The prefix names the port 443, so that it does not apply to other ports of the host.
    default_port_only: bool,
}

/// The parsed configuration of one pull.
#[derive(Debug, Default)]
pub(crate) struct Registries {
    tables: Vec<Registry>,
    /// For error messages.
    origin: String,
}

/// A location to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The reference at this location.
    pub(crate) reference: ImageRef,
    pub(crate) insecure: bool,
    /// The administrator wrote the registry, so it may be on the link of this machine.
    pub(crate) configured: bool,
}

impl Registries {
    pub(crate) fn load(files: &RegistriesFiles) -> Result<Self, ImageError> {
        let mut registries = Self {
            origin: files.file.as_deref().unwrap_or(Path::new("registries.conf")).display().to_string(),
            ..Self::default()
        };
        if let Some(file) = &files.file
            && let Some(text) = read(file)?
        {
            registries.add(file, &text)?;
        }
        for directory in &files.drop_ins {
            for file in drop_ins(directory)? {
                if let Some(text) = read(&file)? {
                    registries.add(&file, &text)?;
                }
            }
        }
        if let Some(file) = &files.last {
            let text = read(file)?.ok_or_else(|| {
                ImageError::Config(format!("registry configuration {} is missing", file.display()))
            })?;
            registries.add(file, &text)?;
        }
        Ok(registries)
    }

    pub(crate) fn add(&mut self, path: &Path, text: &str) -> Result<(), ImageError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
            ImageError::Config(format!(
                "registry configuration {} is invalid: line {line}: {}",
                path.display(),
                error.message()
            ))
        })?;
        if file.registries.is_some() {
            return Err(ImageError::Config(format!(
                "registry configuration {} has the format of version 1 ([registries.…]); write [[registry]] tables",
                path.display()
            )));
        }
        for table in file.registry {
            let table = table.checked(path)?;
            // a file may repeat a prefix of an earlier file; its table replaces the earlier one
            self.tables.retain(|known| known.scope != table.scope);
            self.tables.push(table);
        }
        Ok(())
    }

    /// Where to fetch `reference` from, in order. `from_tag`: a tag led to it, so that mirrors for tags have it, too.
    pub(crate) fn locations(
        &self,
        reference: &ImageRef,
        from_tag: bool,
    ) -> Result<Vec<Location>, ImageError> {
        let Some(table) = self.table(reference) else {
            return Ok(vec![Location { reference: reference.clone(), insecure: false, configured: false }]);
        };
        let is_digest = reference.digest().is_some();
        let mut locations = Vec::new();
        for mirror in &table.mirror {
            let applies = match mirror.pull_from_mirror {
                None => !table.mirror_by_digest_only || is_digest,
                Some(PullFromMirror::All) => true,
                Some(PullFromMirror::DigestOnly) => is_digest,
                Some(PullFromMirror::TagOnly) => !is_digest || from_tag,
            };
            if !applies {
                continue;
            }
            let reference = moved(reference, &table.scope, &mirror.location)?;
            if self.table(&reference).is_none_or(|own| !own.blocked) {
                locations.push(Location { reference, insecure: mirror.insecure, configured: true });
            }
        }
        let (own, configured) = match table.location.as_str() {
            "" => (reference.clone(), false),
            location => (moved(reference, &table.scope, location)?, true),
        };
        let blocking = [Some(table), self.table(&own)].into_iter().flatten().find(|table| table.blocked);
        match blocking {
            None => locations.push(Location { reference: own, insecure: table.insecure, configured }),
            Some(blocking) if locations.is_empty() => {
                return Err(ImageError::Config(format!(
                    "registry {} is blocked in {}",
                    blocking.prefix(),
                    self.origin
                )));
            }
            Some(_) => {}
        }
        Ok(locations)
    }

    fn table(&self, reference: &ImageRef) -> Option<&Registry> {
        let name = reference.name();
        self.tables
            .iter()
            .filter(|table| table.scope.matched(&name).is_some())
            .max_by_key(|table| (table.scope.text.len(), table.scope.default_port_only))
    }
}

impl Registry {
    fn prefix(&self) -> &str {
        match self.prefix.as_deref() {
            Some(prefix) if !prefix.is_empty() => prefix,
            _ => &self.location,
        }
    }

    fn checked(mut self, path: &Path) -> Result<Self, ImageError> {
        let bad = |why: String| {
            ImageError::Config(format!("registry configuration {} is invalid: {why}", path.display()))
        };
        self.location = tidy(&self.location).map_err(bad)?;
        if let Some(prefix) = &self.prefix {
            self.prefix = Some(tidy(prefix).map_err(bad)?);
        }
        for mirror in &mut self.mirror {
            mirror.location = tidy(&mirror.location).map_err(bad)?;
            if mirror.location.is_empty() {
                return Err(bad(format!("a mirror of {:?} has no location", self.prefix())));
            }
        }
        if self.prefix().is_empty() {
            return Err(bad("a [[registry]] table has neither prefix nor location".into()));
        }
        if self.location.is_empty() && !self.prefix().starts_with("*.") {
            return Err(bad(format!("registry {:?} has no location", self.prefix())));
        }
        if self.mirror_by_digest_only && self.mirror.iter().any(|mirror| mirror.pull_from_mirror.is_some()) {
            return Err(bad(format!(
                "registry {:?} sets both mirror-by-digest-only and pull-from-mirror of a mirror",
                self.prefix()
            )));
        }
        self.scope = Scope::new(self.prefix());
        Ok(self)
    }
}

fn tidy(location: &str) -> Result<String, String> {
    if location.contains("://") {
        return Err(format!("{location:?} must not have a scheme"));
    }
    Ok(location.trim_end_matches('/').to_owned())
}

impl Scope {
    fn new(prefix: &str) -> Self {
        let (registry, path) = prefix.find('/').map_or((prefix, ""), |slash| prefix.split_at(slash));
        let canonical = canonical_registry(registry);
        let default_port_only =
            registry.rsplit_once(':').is_some_and(|(_, port)| port.trim_start_matches('0') == "443");
        let is_host = path.is_empty() && !default_port_only;
        // a host alone applies to each of its ports
        let text = canonical.strip_suffix(":443").filter(|_| is_host).unwrap_or(&canonical);
        Self { text: format!("{text}{path}"), default_port_only }
    }

    /// The length of the part of `name` that the scope matches.
    fn matched(&self, name: &str) -> Option<usize> {
        let end = name.find('/').unwrap_or(name.len());
        let is_port = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let port = name[..end].rsplit(':').next().filter(is_port);
        if self.default_port_only && port.is_some_and(|port| port != "443") {
            return None;
        }
        let Some(domain) = self.text.strip_prefix('*') else {
            let rest = name.strip_prefix(&self.text)?;
            return (rest.is_empty() || rest.starts_with(['/', ':', '@'])).then_some(self.text.len());
        };
        // `*.example.com` and `*.example.com/path`
        let (domain, path) =
            domain.split_once('/').map_or((domain, None), |(domain, path)| (domain, Some(path)));
        let host = name[..end].split(':').next().unwrap_or_default();
        if !host.ends_with(domain) && !name[..end].ends_with(domain) {
            return None;
        }
        let Some(path) = path else { return Some(end) };
        let after = name.get(end + 1..)?.strip_prefix(path)?;
        (after.is_empty() || after.starts_with('/')).then_some(end + 1 + path.len())
    }
}

fn moved(reference: &ImageRef, scope: &Scope, location: &str) -> Result<ImageRef, ImageError> {
    let name = reference.name();
    let length = scope.matched(&name).unwrap_or(0);
    let target = format!("{location}{}", &name[length..]);
    reference.with_name(&target).map_err(|error| {
        ImageError::Config(format!(
            "registry configuration turns {name:?} into {target:?}, which is no repository: {error}"
        ))
    })
}

fn read(path: &Path) -> Result<Option<String>, ImageError> {
    if_there(path, std::fs::read_to_string(path))
}

fn drop_ins(directory: &Path) -> Result<Vec<PathBuf>, ImageError> {
    let mut files = if_there(directory, paths_in(directory))?.unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conf") && path.is_file());
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parsed(text: &str) -> Result<Registries, ImageError> {
        let mut registries = Registries { origin: "test.conf".into(), ..Registries::default() };
        registries.add(Path::new("test.conf"), text)?;
        Ok(registries)
    }

    fn locations(registries: &Registries, reference: &str) -> Result<Vec<String>, String> {
        located(registries, reference, false)
    }

    fn located(registries: &Registries, reference: &str, from_tag: bool) -> Result<Vec<String>, String> {
        let found = registries.locations(&reference.parse().unwrap(), from_tag);
        Ok(found
            .map_err(|cause| cause.to_string())?
            .into_iter()
            .map(|location| {
                format!("{}{}", location.reference, if location.insecure { " insecure" } else { "" })
            })
            .collect())
    }

    #[test]
    #[rustfmt::skip]
    fn registries_locate_references() {
        let registries = parsed(
            r#"
            unqualified-search-registries = ["docker.io"]
            [[registry]]
            location = "quay.io"
            [[registry.mirror]]
            location = "mirror.test:5000/quay"
            insecure = true
            [[registry]]
            prefix = "quay.io/secret"
            blocked = true
            location = "quay.io/secret"
            [[registry]]
            prefix = "*.corp.test"
            insecure = true
            [[registry]]
            prefix = "old.test/a"
            location = "new.test/b/c"
            mirror-by-digest-only = true
            [[registry.mirror]]
            location = "m1.test"
            [[registry]]
            prefix = "mixed.test"
            location = "mixed.test"
            [[registry.mirror]]
            location = "tags.test"
            pull-from-mirror = "tag-only"
            [[registry.mirror]]
            location = "digests.test"
            pull-from-mirror = "digest-only"
            "#,
        )
        .unwrap();
        let at = |name: &str| format!("{name}@{DIGEST}");
        for (reference, want) in [
            ("quay.io/a/b:1".into(), Ok(vec!["mirror.test:5000/quay/a/b:1 insecure".into(), "quay.io/a/b:1".into()])),
            ("quay.io/secrets/b:1".into(), Ok(vec!["mirror.test:5000/quay/secrets/b:1 insecure".into(), "quay.io/secrets/b:1".into()])),
            ("quay.io/secret/b:1".into(), Err("registry quay.io/secret is blocked in test.conf".into())),
            ("x.corp.test:5000/a:1".into(), Ok(vec!["x.corp.test:5000/a:1 insecure".into()])),
            ("corp.test/a:1".into(), Ok(vec!["corp.test/a:1".into()])),
            ("old.test/a/x:1".into(), Ok(vec!["new.test/b/c/x:1".into()])),
            (at("old.test/a/x"), Ok(vec![at("m1.test/x"), at("new.test/b/c/x")])),
            ("mixed.test/x:1".into(), Ok(vec!["tags.test/x:1".into(), "mixed.test/x:1".into()])),
            (at("mixed.test/x"), Ok(vec![at("digests.test/x"), at("mixed.test/x")])),
            ("other.test/x:1".into(), Ok(vec!["other.test/x:1".into()])),
        ] as [(String, Result<Vec<String>, String>); 10]
        {
            assert_eq!(locations(&registries, &reference), want, "{reference}");
        }
        let want = ["tags.test/x", "digests.test/x", "mixed.test/x"].map(at);
        assert_eq!(located(&registries, &at("mixed.test/x"), true).unwrap(), want, "a tag led to it");
    }

    /// rule: catalogd §5.3; a location is blocked by its own table, as `NeverContactSource` of OpenShift needs it
    #[test]
    fn registries_leave_out_blocked_locations() {
        let registries = parsed(
            r#"
            [[registry]]
            location = "source.test"
            blocked = true
            [[registry.mirror]]
            location = "mirror.test/source"
            [[registry.mirror]]
            location = "closed.test/source"
            [[registry.mirror]]
            location = "tags.test"
            pull-from-mirror = "tag-only"
            [[registry]]
            location = "closed.test"
            blocked = true
            [[registry]]
            prefix = "moved.test"
            location = "closed.test/moved"
            [[registry]]
            location = "tagged.test"
            blocked = true
            [[registry.mirror]]
            location = "tags.test"
            pull-from-mirror = "tag-only"
            "#,
        )
        .unwrap();
        let digest = format!("tagged.test/x@{DIGEST}");
        let blocked = |name: &str| Err(format!("registry {name} is blocked in test.conf"));
        for (reference, from_tag, want) in [
            ("source.test/x:1", false, Ok(vec!["mirror.test/source/x:1".into(), "tags.test/x:1".into()])),
            ("closed.test/x:1", false, blocked("closed.test")),
            ("moved.test/x:1", false, blocked("closed.test")),
            ("tagged.test/x:1", false, Ok(vec!["tags.test/x:1".into()])),
            (digest.as_str(), false, blocked("tagged.test")),
            (digest.as_str(), true, Ok(vec![format!("tags.test/x@{DIGEST}")])),
        ] as [(&str, bool, Result<Vec<String>, String>); 6]
        {
            assert_eq!(located(&registries, reference, from_tag), want, "{reference} {from_tag}");
        }
    }

    /// A registry has several spellings; a table applies to all of them, whichever its prefix has.
    #[test]
    fn registries_apply_to_every_spelling_of_a_registry() {
        for (prefix, references) in [
            ("quay.io", &["QUAY.IO/a/b:1", "quay.io:443/a/b:1", "quay.io:5000/a/b:1"][..]),
            ("Quay.io:443/a", &["quay.io/a/b:1", "QUAY.io:0443/a/b:1"]),
            ("docker.io/a", &["registry-1.docker.io/a/b:1", "Docker.io:443/a/b:1"]),
            ("index.docker.io", &["docker.io/a/b:1", "registry-1.docker.io/a/b:1"]),
            ("*.Corp.test", &["A.corp.test/a/b:1", "a.CORP.test:443/a/b:1"]),
            ("myregistry", &["MyRegistry/a/b:1", "myregistry:443/a/b:1", "myregistry:5000/a/b:1"]),
            ("MyRegistry/a", &["MyRegistry/a/b:1", "myregistry:443/a/b:1"]),
        ] {
            let table = format!("[[registry]]\nprefix = '{prefix}'\nlocation = 'x.test'\nblocked = true");
            let registries = parsed(&table).unwrap();
            for reference in references {
                let error = locations(&registries, reference).expect_err(reference);
                assert_eq!(error, format!("registry {prefix} is blocked in test.conf"), "{reference}");
            }
        }
        let one_port = parsed("[[registry]]\nlocation = 'quay.io:443'\ninsecure = true").unwrap();
        assert_eq!(locations(&one_port, "quay.io:443/a:1").unwrap(), ["quay.io/a:1 insecure"]);
        assert_eq!(locations(&one_port, "quay.io:5000/a:1").unwrap(), ["quay.io:5000/a:1"]);
        let mirror =
            "[[registry]]\nlocation = 'docker.io'\n[[registry.mirror]]\nlocation = 'Mirror.test:443/hub'";
        let mirrored = locations(&parsed(mirror).unwrap(), "registry-1.docker.io/a/b:1").unwrap();
        assert_eq!(mirrored, ["mirror.test/hub/a/b:1", "docker.io/a/b:1"]);
    }

    #[test]
    fn registries_drop_ins_replace_tables_in_name_order() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("registries.conf");
        let extra = directory.path().join("d");
        std::fs::create_dir(&extra).unwrap();
        std::fs::write(&file, "[[registry]]\nlocation = 'a.test'\n[[registry]]\nlocation='b.test'\n")
            .unwrap();
        std::fs::write(extra.join("20.conf"), "[[registry]]\nprefix='a.test'\nlocation='second.test'")
            .unwrap();
        std::fs::write(extra.join("10.conf"), "[[registry]]\nprefix='a.test'\nlocation='first.test'")
            .unwrap();
        std::fs::write(extra.join("ignored.toml"), "nonsense").unwrap();
        let files =
            RegistriesFiles { file: Some(file), drop_ins: vec![extra, "/nonexistent".into()], last: None };
        let registries = Registries::load(&files).unwrap();
        assert_eq!(locations(&registries, "a.test/x:1").unwrap(), ["second.test/x:1"]);
        assert_eq!(locations(&registries, "b.test/x:1").unwrap(), ["b.test/x:1"]);
    }

    #[test]
    #[rustfmt::skip]
    fn registries_errors_name_the_file() {
        for (text, want) in [
            ("[registries.search]\nregistries=['a']", "has the format of version 1"),
            ("[[registry]]\ninsecure = 'yes'", "test.conf is invalid: line 2"),
            ("[[registry]]\nblocked = true", "neither prefix nor location"),
            ("[[registry]]\nprefix = 'a.test'", "registry \"a.test\" has no location"),
            ("[[registry]]\nlocation = 'https://a.test'", "must not have a scheme"),
            ("[[registry]]\nlocation = 'a'\n[[registry.mirror]]\nlocation=''", "a mirror of \"a\" has no location"),
        ] {
            let got = parsed(text).unwrap_err().to_string();
            assert!(got.contains(want), "{text:?}: {got}");
        }
    }

    proptest::proptest! {
        /// Any table and any reference: no panic, and locations that are references again.
        #[test]
        fn registries_accept_any_table(
            prefix in "(\\*\\.)?[a-z.]{1,8}(:[0-9]{1,3})?(/[a-z]{1,3}){0,2}",
            location in "[a-z.]{0,8}(:[0-9]{1,3})?(/[a-zA-Z]{1,3}){0,2}",
            name in "[a-z]{1,3}\\.[a-z.]{1,5}[a-z](:[0-9]{1,3})?(/[a-z]{1,3}){1,3}",
        ) {
            let text = format!("[[registry]]\nprefix = '{prefix}'\nlocation = '{location}'\n");
            if let (Ok(registries), Ok(reference)) = (parsed(&text), format!("{name}:1").parse())
                && let Ok(locations) = registries.locations(&reference, false)
            {
                proptest::prop_assert_eq!(locations.len(), 1);
                proptest::prop_assert_eq!(locations[0].reference.tag(), Some("1"));
            }
        }

        #[test]
        fn registries_parse_any_text_without_panic(text in "\\PC{0,200}") {
            let _ = parsed(&text);
        }
    }
}
