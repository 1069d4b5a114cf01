//! Bounds on the cost of an image.
//!
//! All limits hold for one image. They bound memory (names, headers, number of remembered paths), disk (selected bytes)
//! and work (all bytes, ratio), so that a hostile image ends with an error and does not kill the process
//! (rule: catalogd §12 row 16).

/// Bounds for one image. [`Limits::default`] is far above real catalogs and bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Compressed bytes that the manifest may declare, all layers together.
    pub download_bytes: u64,
    /// Decompressed bytes of all layers together, selected or not.
    pub unpacked_bytes: u64,
    /// Bytes of all selected files together.
    pub selected_bytes: u64,
    /// Bytes of one selected file.
    pub file_bytes: u64,
    /// Tar entries of all layers together, selected or not.
    pub entries: u64,
    /// Bytes of extended headers (long names, PAX records) of all layers together, selected or not.
    pub extended_bytes: u64,
    /// Selected entries (and whiteouts) of all layers together; each is remembered in memory.
    pub selected_entries: u64,
    /// Decompressed bytes per compressed byte of one layer; checked beyond [`Limits::ratio_from`].
    pub ratio: u64,
    /// Decompressed bytes of a layer from which the ratio counts.
    pub ratio_from: u64,
    /// Number of layers.
    pub layers: usize,
    /// Bytes of one name or link target.
    pub name_bytes: usize,
    /// Components of one name.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            download_bytes: 8 << 30,
            unpacked_bytes: 8 << 30,
            selected_bytes: 2 << 30,
            file_bytes: 2 << 30,
            entries: 2_000_000,
            extended_bytes: 128 << 20,
            selected_entries: 200_000,
            ratio: 200,
            ratio_from: 64 << 20,
            layers: 508,
            name_bytes: 4096,
            depth: 64,
        }
    }
}

impl Limits {
    /// Sets the limit of this name, as the flag `--limit` has it; `false` when there is none.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let limit = match name {
            "image-download-bytes" => &mut self.download_bytes,
            "image-unpacked-bytes" => &mut self.unpacked_bytes,
            "image-entries" => &mut self.entries,
            "image-extended-bytes" => &mut self.extended_bytes,
            "image-ratio" => &mut self.ratio,
            "image-layers" => {
                self.layers = usize::try_from(value).unwrap_or(usize::MAX);
                return true;
            }
            _ => return false,
        };
        *limit = value;
        true
    }

    /// Bounds for a registry+v1 bundle: a few hundred small files, 28 MiB together. The largest published bundle has 7 MB.
    #[must_use]
    pub fn bundle() -> Self {
        Self { selected_bytes: 28 << 20, file_bytes: 28 << 20, selected_entries: 10_000, ..Self::default() }
    }
}
