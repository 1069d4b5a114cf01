//! Names that catalogd and its clients share: paths, query parameters, the label of catalog images.

/// Path of the whole catalog; `{catalog}` stands for the catalog's name.
pub const ALL: &str = "/catalogs/{catalog}/api/v1/all";
/// Path of filtered objects.
pub const METAS: &str = "/catalogs/{catalog}/api/v1/metas";
/// Path of the package summaries (additive).
pub const PACKAGES: &str = "/catalogs/{catalog}/api/v1/packages";
/// Path of the GraphQL endpoint.
pub const GRAPHQL: &str = "/catalogs/{catalog}/api/v1/graphql";
/// Query parameter of [`METAS`].
pub const SCHEMA: &str = "schema";
/// Query parameter of [`METAS`].
pub const PACKAGE: &str = "package";
/// Query parameter of [`METAS`].
pub const NAME: &str = "name";
/// Media type of [`ALL`] and [`METAS`].
pub const MEDIA_TYPE: &str = "application/jsonl";
/// Answer header that names the digest of the image the content came from.
pub const DIGEST_HEADER: &str = "Olm-Catalog-Digest";
/// Label of a catalog image with the folder of the catalog in the image.
pub const CONFIGS_LABEL: &str = "operators.operatorframework.io.index.configs.v1";

/// One of the paths above for one catalog.
pub fn path(template: &str, catalog: &str) -> String {
    template.replace("{catalog}", catalog)
}
