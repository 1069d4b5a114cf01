//! The content of a catalog: for the solver, for drawing, and bundle by bundle.

use std::sync::Arc;

use olm_catalog::{CatalogFacts, CatalogReader, PackageContent, Selector};
use olm_core::PackageName;
use olm_solver::{Catalog, PackageDraft};

use crate::failure::CommandError;
use crate::sources::Sources;

pub(super) struct CatalogContent {
    pub(super) catalog: Arc<Catalog>,
    sources: Sources,
    reader: CatalogReader,
    /// `None`: the catalog is empty.
    facts: Option<CatalogFacts>,
}

impl CatalogContent {
    /// Reads every package of the only catalog of these sources.
    pub(super) async fn read(sources: Sources) -> Result<Self, CommandError> {
        let reader = sources.open().await?;
        let facts = reader.select(&Selector::default()).into_iter().next();
        let mut drafts = Vec::new();
        if let Some(facts) = &facts {
            let packages = reader.packages(facts).await.map_err(|error| sources.failure(error))?;
            for summary in packages {
                let Ok(package) = summary.name.parse::<PackageName>() else { continue };
                let content = reader.package(facts, &package).await;
                let content = content.map_err(|error| sources.failure(error))?;
                drafts.extend(PackageDraft::from_contents(content.contents));
            }
        }
        Ok(Self { catalog: Arc::new(Catalog::new(drafts)), sources, reader, facts })
    }

    /// One package; empty if the catalog does not have it.
    pub(super) async fn package(&self, name: &str) -> Result<PackageContent, CommandError> {
        let package: PackageName =
            name.parse().map_err(|_| CommandError::Usage("a package needs a name".to_owned()))?;
        match &self.facts {
            None => Ok(PackageContent::default()),
            Some(facts) => {
                let content = self.reader.package(facts, &package).await;
                content.map_err(|error| self.sources.failure(error))
            }
        }
    }
}
