//! The source of a process's serving certificate, in one value: files that another program writes, or [`SelfIssued`].

use std::sync::Arc;

use futures::FutureExt as _;
use kube::Client;
use olm_runtime::Shutdown;
use olm_runtime::args::Serving;
use olm_runtime::tls::{ServingPair, TlsError, WatchedPair};

use crate::self_issued::{SelfIssued, SelfIssuedError};

/// Made from flags.
#[derive(Debug)]
pub enum Source {
    /// Read already.
    Files(Arc<ServingPair>),
    /// To be issued.
    SelfIssued(Box<SelfIssued>),
}

impl Source {
    /// Reads the files, or prepares to issue in `namespace`, for `names` if none are given by flag.
    ///
    /// # Errors
    /// As [`ServingPair::load`].
    pub fn open(
        serving: &Serving,
        client: &Client,
        namespace: &str,
        names: Vec<String>,
    ) -> Result<Self, TlsError> {
        match serving {
            Serving::Files { cert, key } => ServingPair::load(cert, key).map(Self::Files),
            Serving::SelfIssued(flags) => {
                Ok(Self::SelfIssued(Box::new(SelfIssued::new(client, flags, namespace, names))))
            }
        }
    }

    /// The pair to begin with, and the work that keeps it current until shutdown; `None` if the process was asked to stop before
    /// there was one.
    ///
    /// # Errors
    /// As [`SelfIssued::first`].
    pub async fn pair(self, stop: Shutdown) -> Result<Option<WatchedPair>, SelfIssuedError> {
        match self {
            Self::Files(pair) => Ok(Some((Arc::clone(&pair), pair.watch(stop).boxed()))),
            Self::SelfIssued(mut issued) => {
                let first = issued.first(&stop).await?;
                Ok(first.map(|pair| (Arc::clone(&pair), issued.keep(pair, stop).boxed())))
            }
        }
    }
}
