//! The writer of the objects of an install, as OLM itself or as the account of the group.
//!
//! Rule: classic-apis §6.3 row 16.

use olm_certificates::ExecutorError;
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify, message};

use super::installs::{InstallError, Retry};
use crate::write::ObjectWriter;

impl InstallError {
    pub(super) fn hopeless(error: impl ToString) -> Self {
        Self { message: error.to_string(), retry: Retry::Hopeless }
    }

    pub(super) fn retried(error: impl ToString) -> Self {
        Self { message: error.to_string(), retry: Retry::Later }
    }

    /// A write that the apiserver rejected.
    fn of_write(object: &Object, actor: Actor, error: &kube::Error) -> Self {
        let retry = match classify(error) {
            ErrorClass::Invalid => Retry::OnChange,
            ErrorClass::Forbidden if actor == Actor::Account => Retry::Hopeless,
            _ => Retry::Later,
        };
        let message = format!("{} {}: {}", object.kind(), object.name(), message(error));
        Self { message, retry }
    }
}

/// Who writes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    /// It has the rights, so a 403 passes: an apiserver that starts has not read the roles yet, and a quota may be used up.
    Controller,
    /// The account of the group: a 403 stays until its rights change.
    Account,
}

/// Writes the objects of an install as one actor.
pub(super) struct InstallWriter {
    pub(super) writer: ObjectWriter,
    pub(super) actor: Actor,
}

impl InstallWriter {
    /// Creates the object, or replaces it if it lacks something.
    pub(super) async fn ensure(
        &self,
        desired: &Object,
        live: Option<&Object>,
    ) -> Result<Option<Object>, InstallError> {
        self.checked(desired, self.writer.ensure(desired, live).await)
    }

    /// The answer to a write of this object.
    pub(super) fn checked<T>(&self, object: &Object, answer: kube::Result<T>) -> Result<T, InstallError> {
        answer.map_err(|error| InstallError::of_write(object, self.actor, &error))
    }
}

impl From<ExecutorError> for InstallError {
    fn from(error: ExecutorError) -> Self {
        Self::retried(error)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::write::named;

    #[test]
    fn install_forbidden_is_final_for_the_account_alone() {
        let error = |code: u16, reason: &str| {
            let status = json!({"status": "Failure", "code": code, "reason": reason, "message": "m"});
            kube::Error::Api(serde_json::from_value::<kube::core::Status>(status).unwrap().boxed())
        };
        let object = named("apps/v1", "Deployment", Some("n"), "d");
        for (code, reason, actor, retry) in [
            (403, "Forbidden", Actor::Controller, Retry::Later),
            (403, "Forbidden", Actor::Account, Retry::Hopeless),
            (422, "Invalid", Actor::Controller, Retry::OnChange),
            (500, "InternalError", Actor::Account, Retry::Later),
        ] {
            let got = InstallError::of_write(&object, actor, &error(code, reason));
            let want = InstallError { message: "Deployment d: m".to_owned(), retry };
            assert_eq!(got, want, "{code} {actor:?}");
        }
    }
}
