//! As whom objects are written: the controller itself, or an account that the extension names (decision 8).
//!
//! The engine knows only this seam. Watches, revisions, their Secrets and their status are always the controller's own.

use futures::future::BoxFuture;
use kube::Client;

/// The purpose of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Creating and changing objects of a revision.
    Apply,
    /// Removing them; must work even when the account is gone.
    Remove,
}

/// Gives the client with which the objects of an extension are written.
pub trait Identities: Send + Sync + 'static {
    /// The client for the objects of `extension` (`None` for a revision that belongs to no extension). An error's text
    /// goes into the revision's condition.
    fn client<'a>(
        &'a self,
        extension: Option<&'a str>,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Client, String>>;
}

/// Everything is written as the controller.
pub struct ControllerIdentity(pub Client);

impl Identities for ControllerIdentity {
    fn client<'a>(&'a self, _: Option<&'a str>, _: Purpose) -> BoxFuture<'a, Result<Client, String>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}
