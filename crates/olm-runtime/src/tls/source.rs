//! The source of a process's serving certificate, in one value: files that another program writes, or [`SelfIssued`].

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::ServingPair;
use super::issue::{SelfIssued, SelfIssuedError};
use crate::Shutdown;

/// Made from flags by [`crate::args::Serving::open`].
#[derive(Debug)]
pub enum Source {
    /// Read already.
    Files(Arc<ServingPair>),
    /// To be asked for.
    SelfIssued(Box<SelfIssued>),
}

impl Source {
    /// The pair to begin with, and the work that keeps it current until shutdown; `None` if the process was asked to stop before
    /// there was one.
    ///
    /// # Errors
    /// As [`SelfIssued::first`].
    pub async fn pair(
        self,
        stop: &Shutdown,
    ) -> Result<Option<(Arc<ServingPair>, BoxFuture<'static, ()>)>, SelfIssuedError> {
        match self {
            Self::Files(pair) => Ok(Some((Arc::clone(&pair), pair.watch(stop.clone()).boxed()))),
            Self::SelfIssued(mut issued) => Ok(issued
                .first(stop)
                .await?
                .map(|pair| (Arc::clone(&pair), issued.keep(pair, stop.clone()).boxed()))),
        }
    }
}
