//! Local catalogs: the files of a directory, or the content of an image.
//!
//! Files that do not decode are passed over and reported: catalogd would reject the catalog, but a reader can use the rest.

use std::path::Path;

use olm_fbc::{
    Catalog, Finding, IngestError, IngestLimits, PackageSummary, file_findings, load_dir_leniently,
};

/// The location of the JSON lines.
#[derive(Debug)]
pub(crate) enum LocalCatalog {
    Memory(Box<Catalog>),
    /// On disk, found through an index.
    Image(Box<crate::image_store::CatalogImage>),
}

/// Reads a directory. The strings name the files that were passed over, and why.
pub(crate) fn directory(path: &Path) -> Result<(LocalCatalog, Vec<String>), IngestError> {
    let (catalog, problems) = load_dir_leniently(path, IngestLimits::default())?;
    let passed_over = file_findings(&problems).iter().map(Finding::located).collect();
    Ok((LocalCatalog::Memory(Box::new(catalog)), passed_over))
}

impl LocalCatalog {
    /// Names of the packages, sorted.
    pub(crate) fn packages(&self) -> Vec<String> {
        let index = match self {
            Self::Memory(catalog) => &catalog.index,
            Self::Image(image) => &image.opened.index,
        };
        index.packages().into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn lines(&self, package: &str) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Memory(catalog) => Ok(catalog
                .package_lines(package)
                .flat_map(|line| line.iter().chain(b"\n"))
                .copied()
                .collect()),
            Self::Image(image) => image.package_lines(package),
        }
    }

    /// Every package in brief.
    pub(crate) fn summaries(&self) -> std::io::Result<Vec<PackageSummary>> {
        let summary = |package: String| {
            let lines = self.lines(&package)?;
            Ok(olm_fbc::summary(&package, lines.split(|byte| *byte == b'\n')))
        };
        self.packages().into_iter().map(summary).collect()
    }
}

/// Every package of a whole catalog in brief.
pub(crate) fn summaries_of(jsonl: &[u8]) -> Result<Vec<PackageSummary>, IngestError> {
    let catalog = Catalog::from_jsonl(jsonl, IngestLimits::default())?;
    let packages = catalog.packages();
    Ok(packages
        .into_iter()
        .map(|package| olm_fbc::summary(package, catalog.package_lines(package)))
        .collect())
}
