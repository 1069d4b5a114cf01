//! As whom objects are written: the controller itself, or an account that the extension names (decision 8).
//!
//! The engine knows only this seam. Watches, revisions, their Secrets and their status are always the controller's own.

use futures::future::BoxFuture;
use kube::Client;
use olm_install::account::Account;

/// The purpose of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Creating and changing objects of a revision.
    Apply,
    /// Removing them; must work even when the account is gone.
    Remove,
}

/// The owner of a revision, on which the identity depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A ClusterExtension. Another one of the same name has another UID.
    Extension { name: String, uid: String },
    /// None (any more), with the account of the ClusterExtension that it had.
    None(Option<Account>),
}

/// Why there is no client. Its text goes into the revision's condition.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The ClusterExtension is gone, or cannot be parsed; which account it had, its Secrets record.
    #[error("{0}")]
    NoExtension(String),
    /// Anything else, which another pass may not find.
    #[error("{0}")]
    Failed(String),
}

/// Gives the client with which the objects of a revision are written.
pub trait Identities: Send + Sync + 'static {
    /// The client for the objects of a revision with this owner.
    fn client<'a>(
        &'a self,
        owner: &'a Owner,
        purpose: Purpose,
    ) -> BoxFuture<'a, Result<Client, IdentityError>>;
}

/// Everything is written as the controller.
pub struct ControllerIdentity(pub Client);

impl Identities for ControllerIdentity {
    fn client<'a>(&'a self, _: &'a Owner, _: Purpose) -> BoxFuture<'a, Result<Client, IdentityError>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}
