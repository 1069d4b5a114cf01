//! The files of a registry+v1 bundle, read once into a [`RegistryV1`]. Rule: bundle-rendering §2.
//!
//! Paths are the ones every bundle uses; image labels that would relocate them are not looked at. Files are taken in
//! path order whatever order they come in. A file in `manifests/` that has no manifest's name and holds no manifest (such
//! as a README) is left out with a warning instead of failing the bundle.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use olm_core::{Cancellation, Object};
use serde_json::Value;

use crate::csv::{Csv, short, undeclared, warn};
use crate::documents::{BundleLimits, DocumentError, NodeBudget};
use crate::kinds;
use crate::kube::{ShapeError, component, conform};
use crate::properties;
use crate::v1beta1;

const ANNOTATIONS: &str = "metadata/annotations.yaml";
pub(crate) const PROPERTIES: &str = "metadata/properties.yaml";
const MANIFESTS: &str = "manifests";
const PACKAGE_KEY: &str = "operators.operatorframework.io.bundle.package.v1";

const LIST_DEPTH: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub struct RegistryV1 {
    /// Package of `metadata/annotations.yaml`; may be empty, which validation refuses.
    pub package_name: String,
    pub csv: Csv,
    /// CustomResourceDefinitions in file order, members that Kubernetes does not declare removed.
    pub crds: Vec<Object>,
    /// Every other object, untouched, in file order.
    pub others: Vec<Object>,
    /// What was left out or looks wrong but stops nothing.
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("open metadata/annotations.yaml: no such file or directory")]
    NoAnnotations,
    /// `metadata/annotations.yaml` is not what it should be.
    #[error("{message}")]
    Annotations { message: String },
    #[error("stat manifests: no such file or directory")]
    NoManifests,
    /// `manifests/` is not flat.
    #[error(
        "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found {path:?}"
    )]
    SubDirectory { path: String },
    #[error("error parsing objects in {path:?}: {message}{}", also(.more))]
    Objects {
        /// The first file that cannot be read.
        path: String,
        message: String,
        more: Vec<String>,
    },
    #[error("no ClusterServiceVersion found in \"manifests\"")]
    NoCsv,
    /// There is more than one CSV; which one is meant cannot be known.
    #[error("more than one ClusterServiceVersion found in \"manifests\": {}; a bundle holds exactly one", .names.join(", "))]
    SeveralCsvs { names: Vec<String> },
    /// Properties of the bundle cannot be read.
    #[error(transparent)]
    Properties(#[from] properties::PropertiesError),
    /// The bundle is larger than any bundle is.
    #[error(
        "the bundle has more than {limit} {what} below manifests/ and metadata/; remove what the operator does not need, or \
         split the bundle"
    )]
    TooLarge { limit: u64, what: &'static str },
    /// The files have more values and keys than any bundle has.
    #[error(
        "the bundle has more than {limit} nodes in its files (values and keys; an object counts as ten, a list as three), counted up to {path:?}; remove what \
         the operator does not need, or split the bundle"
    )]
    TooManyNodes {
        /// The file in which the limit was reached.
        path: String,
        limit: u64,
    },
    #[error("reading the bundle was cancelled")]
    Cancelled,
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: io::Error,
    },
}

fn also(files: &[String]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let shown: Vec<_> = files.iter().take(3).map(|path| format!("{path:?}")).collect();
    let rest = if files.len() > shown.len() {
        format!(" and {} more", files.len() - shown.len())
    } else {
        String::new()
    };
    format!("; not readable either: {}{rest}", shown.join(", "))
}

impl RegistryV1 {
    /// Reads a bundle from its files: paths relative to the bundle's root, with `/`. Files outside `manifests/` and
    /// `metadata/` are ignored; a path that ends in `/` is a directory.
    ///
    /// # Errors
    /// When the files are no registry+v1 bundle.
    pub fn from_files<P, B>(files: impl IntoIterator<Item = (P, B)>) -> Result<Self, ParseError>
    where
        P: Into<String>,
        B: AsRef<[u8]>,
    {
        Self::from_files_until(files, BundleLimits::default(), &Cancellation::default())
    }

    fn from_files_until<P, B>(
        files: impl IntoIterator<Item = (P, B)>,
        limits: BundleLimits,
        cancellation: &Cancellation,
    ) -> Result<Self, ParseError>
    where
        P: Into<String>,
        B: AsRef<[u8]>,
    {
        let mut by_path = BTreeMap::new();
        let mut bytes = 0_u64;
        for (path, content) in files {
            let path: String = path.into();
            let path = path.trim_start_matches("./").trim_start_matches('/').to_owned();
            if path == ANNOTATIONS || path == PROPERTIES || path.starts_with("manifests/") {
                bytes += content.as_ref().len() as u64;
                by_path.insert(path, content);
            }
        }
        if bytes > limits.bytes {
            return Err(ParseError::TooLarge { limit: limits.bytes, what: "bytes" });
        }
        if by_path.len() > limits.files {
            return Err(ParseError::TooLarge { limit: limits.files as u64, what: "files" });
        }

        let annotations = by_path.get(ANNOTATIONS).ok_or(ParseError::NoAnnotations)?;
        let mut budget = NodeBudget::new(limits, cancellation);
        let package_name = package_name(annotations.as_ref(), &mut budget)?;
        let mut warnings = Vec::new();
        let manifests = manifests(&by_path, &mut budget, &mut warnings)?;
        let mut classified = classify(manifests, &mut warnings)?;
        let csv = match classified.csvs.len() {
            0 => return Err(ParseError::NoCsv),
            1 => classified.csvs.remove(0),
            _ => {
                return Err(ParseError::SeveralCsvs {
                    names: classified.csvs.into_iter().map(|csv| csv.name).collect(),
                });
            }
        };
        let csv = properties::merge(csv, by_path.get(PROPERTIES).map(AsRef::as_ref), &mut budget)?;
        Ok(Self { package_name, csv, crds: classified.crds, others: classified.others, warnings })
    }

    /// Reads a bundle from an unpacked directory. Symbolic links are followed inside it, never out of it.
    ///
    /// # Errors
    /// When a file cannot be read or the files are no registry+v1 bundle.
    pub fn load_dir(root: &Path) -> Result<Self, ParseError> {
        Self::load_dir_until(root, BundleLimits::default(), &Cancellation::default())
    }

    /// As [`Self::load_dir`], within other limits. It reads the cancellation before each document.
    ///
    /// # Errors
    /// As [`Self::load_dir`], and [`ParseError::Cancelled`].
    pub fn load_dir_until(
        root: &Path,
        limits: BundleLimits,
        cancellation: &Cancellation,
    ) -> Result<Self, ParseError> {
        let mut folder = Folder { root: root.to_owned(), limit: limits.bytes, left: limits.bytes };
        let mut files = Vec::new();
        for path in [ANNOTATIONS, PROPERTIES] {
            files.extend(folder.read(path)?);
        }
        let failed = |source| ParseError::Read { path: MANIFESTS.to_owned(), source };
        match fs::read_dir(root.join(MANIFESTS)) {
            Ok(entries) => {
                for entry in entries {
                    let name = entry.map_err(failed)?.file_name();
                    files.extend(folder.read(&format!("{MANIFESTS}/{}", name.to_string_lossy()))?);
                }
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed(source)),
        }
        Self::from_files_until(files, limits, cancellation)
    }
}

/// A directory that files are read from, how many bytes may be, and how many still may.
struct Folder {
    root: PathBuf,
    limit: u64,
    left: u64,
}

impl Folder {
    /// A file with its path; a directory as its path with a slash; `None` when there is nothing.
    fn read(&mut self, path: &str) -> Result<Option<(String, Vec<u8>)>, ParseError> {
        let failed = |source| ParseError::Read { path: path.to_owned(), source };
        let real = match self.root.join(path).canonicalize() {
            Ok(real) => real,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(source)),
        };
        if !real.starts_with(self.root.canonicalize().map_err(failed)?) {
            return Err(failed(io::Error::other("it is a link that leads out of the bundle")));
        }
        let found = fs::metadata(&real).map_err(failed)?;
        if found.is_dir() {
            return Ok(Some((format!("{path}/"), Vec::new())));
        }
        if !found.is_file() {
            // a named pipe would be waited for
            return Err(failed(io::Error::other("it is neither a file nor a directory")));
        }
        let mut content = Vec::new();
        let file = fs::File::open(&real).map_err(failed)?;
        file.take(self.left + 1).read_to_end(&mut content).map_err(failed)?;
        match self.left.checked_sub(content.len() as u64) {
            Some(left) => self.left = left,
            None => return Err(ParseError::TooLarge { limit: self.limit, what: "bytes" }),
        }
        Ok(Some((path.to_owned(), content)))
    }
}

fn package_name(annotations: &[u8], budget: &mut NodeBudget<'_>) -> Result<String, ParseError> {
    let limit = budget.limit();
    let value = budget.single_document(annotations).map_err(|error| match error {
        DocumentError::Nodes => ParseError::TooManyNodes { path: ANNOTATIONS.to_owned(), limit },
        DocumentError::Cancelled => ParseError::Cancelled,
        DocumentError::Invalid(message) => ParseError::Annotations { message },
    })?;
    let package = value.get("annotations").and_then(|annotations| annotations.get(PACKAGE_KEY));
    match package {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) => Err(ParseError::Annotations {
            message: format!("{ANNOTATIONS}: annotations.{PACKAGE_KEY} must be a string"),
        }),
    }
}

/// An object and the file that holds it.
struct Manifest {
    path: String,
    object: Object,
}

fn manifests<B: AsRef<[u8]>>(
    files: &BTreeMap<String, B>,
    budget: &mut NodeBudget<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Manifest>, ParseError> {
    let mut read = Vec::new();
    let mut present = false;
    let mut failures: Vec<(String, String)> = Vec::new();
    for (path, content) in files.range(format!("{MANIFESTS}/")..) {
        let Some(name) = path.strip_prefix("manifests/") else { break };
        present = true;
        if let Some((folder, _)) = name.split_once('/') {
            if !failures.is_empty() {
                break;
            }
            return Err(ParseError::SubDirectory { path: format!("{MANIFESTS}/{folder}") });
        }
        let documents = match budget.documents(content.as_ref()) {
            Ok(documents) => Ok(documents),
            Err(DocumentError::Invalid(message)) => Err(format!("error parsing {path}: {message}")),
            Err(DocumentError::Nodes) => {
                return Err(ParseError::TooManyNodes { path: path.clone(), limit: budget.limit() });
            }
            Err(DocumentError::Cancelled) => return Err(ParseError::Cancelled),
        };
        match documents.and_then(|documents| objects(path, documents)) {
            Ok(found) => read.extend(found.into_iter().map(|object| Manifest { path: path.clone(), object })),
            Err(message) if is_manifest_name(name) => failures.push((path.clone(), message)),
            Err(_) => {
                let text = format!("{path} holds no manifest and has no manifest's name; it is left out");
                warn(warnings, [text]);
            }
        }
    }
    if !present {
        return Err(ParseError::NoManifests);
    }
    let mut failures = failures.into_iter();
    match failures.next() {
        Some((path, message)) => {
            Err(ParseError::Objects { path, message, more: failures.map(|(path, _)| path).collect() })
        }
        None => Ok(read),
    }
}

fn is_manifest_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    [".yaml", ".yml", ".json"].iter().any(|extension| lower.ends_with(extension))
}

fn objects(path: &str, documents: Vec<Value>) -> Result<Vec<Object>, String> {
    let mut found = Vec::new();
    for value in documents {
        if !value.is_null() {
            flatten(path, value, LIST_DEPTH, &mut found)?;
        }
    }
    Ok(found)
}

/// Adds the object, or, where it is a list, what is in it.
fn flatten(path: &str, value: Value, depth: usize, found: &mut Vec<Object>) -> Result<(), String> {
    let mut object =
        Object::from_value(value).map_err(|error| format!("unable to decode {path:?}: {error}"))?;
    if object.kind().is_empty() {
        let text: String = olm_core::go::json_string(&object.to_value()).chars().take(100).collect();
        return Err(format!("unable to decode {path:?}: Object 'Kind' is missing in '{text}'"));
    }
    if !object.kind().ends_with("List") || !object.0.get("items").is_some_and(Value::is_array) {
        found.push(object);
        return Ok(());
    }
    if depth == 0 {
        return Err(format!("unable to decode {path:?}: lists are nested more than {LIST_DEPTH} deep"));
    }
    let kind = object.kind().strip_suffix("List").unwrap_or_default().to_owned();
    let api_version = object.api_version().to_owned();
    let Some(Value::Array(items)) = object.0.remove("items") else { return Ok(()) };
    for mut item in items {
        if let Some(members) = item.as_object_mut()
            && !kind.is_empty()
        {
            members.entry("kind").or_insert_with(|| kind.as_str().into());
            members.entry("apiVersion").or_insert_with(|| api_version.as_str().into());
        }
        flatten(path, item, depth - 1, found)?;
    }
    Ok(())
}

struct Classified {
    csvs: Vec<Csv>,
    crds: Vec<Object>,
    others: Vec<Object>,
}

/// Sorts objects by kind; the group is not looked at.
fn classify(manifests: Vec<Manifest>, warnings: &mut Vec<String>) -> Result<Classified, ParseError> {
    let mut classified = Classified { csvs: Vec::new(), crds: Vec::new(), others: Vec::new() };
    for Manifest { path, mut object } in manifests {
        if object.api_version().is_empty()
            && let Some(usual) = kinds::usual_api_version(object.kind())
        {
            let (kind, name) = (object.kind(), short(object.name()));
            warn(warnings, [format!("{path}: {kind} {name:?} has no apiVersion; {usual} is taken")]);
            object.0.insert("apiVersion".to_owned(), usual.into());
        }
        let wrong = |error: ShapeError| ParseError::Objects {
            path: path.clone(),
            message: error.to_string(),
            more: Vec::new(),
        };
        match object.kind() {
            "ClusterServiceVersion" => classified.csvs.push(Csv::read(object, warnings).map_err(wrong)?),
            "CustomResourceDefinition" => {
                if v1beta1::upgrade(&mut object) {
                    let name = short(object.name());
                    let text = format!(
                        "{path}: CustomResourceDefinition {name:?} is apiextensions.k8s.io/v1beta1, which clusters no \
                         longer serve; it is rendered as v1"
                    );
                    warn(warnings, [text]);
                }
                let mut value = object.into_value();
                let conformed = conform(&mut value, component::CRD, "").map_err(wrong)?;
                let mut crd = Object::from_value(value).unwrap_or_default();
                crd.0.remove("status");
                let name = short(crd.name());
                let dropped = conformed.dropped.iter();
                warn(
                    warnings,
                    dropped.map(|at| undeclared(&format!("CustomResourceDefinition {name:?}: {at}"))),
                );
                classified.crds.push(crd);
            }
            _ => classified.others.push(object),
        }
    }
    Ok(classified)
}

#[cfg(test)]
mod tests;
