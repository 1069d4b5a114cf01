//! An opened image: its labels, and its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use futures::stream::{self, StreamExt as _};
use olm_core::ImageRef;
use tokio::sync::oneshot;

use crate::blob::{self, Incoming};
use crate::error::{Error, ImageError, check_limit};
use crate::http::{Endpoint, Transport};
use crate::layer::{Applier, Selection, Unpacker, Verified, VisitError, Visitor};
use crate::limits::Limits;
use crate::manifest::{Descriptor, check_layer};

/// Stack of the thread that reads layers and runs the visitor; parsers of nested documents run there.
const STACK: usize = 16 << 20;

/// Manifest and config have been read and verified; layers have not.
#[derive(Clone)]
pub struct Image {
    pub(crate) transport: Arc<Transport>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// The requested reference, with the digest of the **top-level** manifest (of the index, for a multi-arch image)
    /// and without tag; mirrors do not show.
    pub canonical: ImageRef,
    /// Labels of the image config.
    pub labels: BTreeMap<String, String>,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("canonical", &self.canonical)
            .field("labels", &self.labels)
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Bytes to download.
    #[must_use]
    pub fn download_size(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }

    /// Streams the selected files through `visitor` and returns it. One pass, nothing on disk. The visitor runs on a
    /// thread of its own with a 16 MiB stack; dropping the future ends it at its next read.
    ///
    /// # Errors
    /// Those of the image, of the network and of the visitor. After an error, discard everything that the visitor received.
    #[tracing::instrument(name = "read image", skip_all, fields(image = %self.canonical, bytes = self.download_size()))]
    pub async fn visit<V>(
        &self,
        selection: Selection,
        limits: &Limits,
        visitor: V,
    ) -> Result<V, VisitError<V::Error>>
    where
        V: Visitor + Send + 'static,
        V::Error: Send,
    {
        self.check(limits)?;
        let mut downloads = Vec::new();
        let mut blobs = Vec::new();
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let (sender, incoming) = blob::channel();
            downloads.push(blob::download(&self.transport, &self.endpoints, layer, sender));
            blobs.push((index, Verified::new(incoming, layer.digest.clone(), layer.size)));
        }
        let applier = Applier::new(visitor, selection, limits.clone());
        let (answer, result) = oneshot::channel();
        std::thread::Builder::new()
            .name("image-layers".into())
            .stack_size(STACK)
            .spawn(move || {
                // the receiver is gone when the pull was cancelled
                let _ = answer.send(apply(applier, blobs));
            })
            .map_err(|source| Error::Apply(ImageError::Io { path: PathBuf::from("thread"), source }))?;
        let ahead = self.transport.config.parallel_layers.max(1);
        let downloading = stream::iter(downloads).buffered(ahead).for_each(|()| std::future::ready(()));
        // the reader decides: when it has failed, what is still coming does not matter
        let result = match select(result, pin!(downloading)).await {
            Either::Left((result, _)) => result,
            Either::Right(((), result)) => result.await,
        };
        result.unwrap_or_else(|_| {
            // the thread panicked; its panic has been printed
            let source = std::io::Error::other("the reader of the image failed");
            Err(Error::Apply(ImageError::Io { path: PathBuf::from("thread"), source }).into())
        })
    }

    /// Writes the selected files beneath `directory`, which must exist and be empty. After an error, discard its content.
    ///
    /// # Errors
    /// As [`Image::visit`]; a failed write is [`ImageError::Io`].
    pub async fn unpack_to(
        &self,
        directory: &Path,
        selection: Selection,
        limits: &Limits,
    ) -> Result<(), Error> {
        let visited = self.visit(selection, limits, Unpacker::new(directory)).await;
        visited.map(drop).map_err(VisitError::<ImageError>::into_error)
    }

    fn check(&self, limits: &Limits) -> Result<(), Error> {
        let size = self.download_size();
        check_limit(size, limits.download_bytes, "bytes", format_args!("download of {size} bytes"))
            .map_err(Error::Copy)?;
        let layers = self.layers.len() as u64;
        check_limit(layers, limits.layers as u64, "layers", format_args!("image with {layers} layers"))
            .map_err(Error::Manifest)?;
        for (index, layer) in self.layers.iter().enumerate() {
            check_layer(layer).map_err(|cause| Error::ReadLayer { index, cause })?;
        }
        Ok(())
    }
}

fn apply<V: Visitor>(
    mut applier: Applier<V>,
    blobs: Vec<(usize, Verified<Incoming>)>,
) -> Result<V, VisitError<V::Error>> {
    for (index, blob) in blobs {
        applier.layer(index, blob)?;
    }
    applier.finish()
}
