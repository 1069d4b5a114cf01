//! Requests for one object, as plain JSON.
//!
//! The client's own dynamic object keeps an answer in memory twice while it is read, and a large one may take most of the memory of
//! the process.

use kube::api::{DeleteParams, GetParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use olm_core::Object;
use serde::{Deserialize as _, Serialize};

/// Requests for the object of one name.
pub(super) struct ObjectRequests {
    client: Client,
    request: Request,
    name: String,
}

impl ObjectRequests {
    /// `url` is the path of the kind, in the namespace of the object.
    pub(super) fn new(client: Client, url: &str, name: &str) -> Self {
        Self { client, request: Request::new(url), name: name.to_owned() }
    }

    /// GET. `None` when there is no object.
    pub(super) async fn get_opt(&self) -> Result<Option<Object>, Error> {
        let request = self.request.get(&self.name, &GetParams::default()).map_err(Error::BuildRequest)?;
        match self.client.request(request).await {
            Ok(object) => Ok(Some(plain(object))),
            Err(Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// POST.
    pub(super) async fn create(&self, params: &PostParams, object: &Object) -> Result<Object, Error> {
        let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
        let request = self.request.create(params, body).map_err(Error::BuildRequest)?;
        self.client.request(request).await.map(plain)
    }

    /// PATCH.
    pub(super) async fn patch<P: Serialize>(
        &self,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Object, Error> {
        let request = self.request.patch(&self.name, params, patch).map_err(Error::BuildRequest)?;
        self.client.request(request).await.map(plain)
    }

    /// DELETE. `false` when the object is still there, being deleted.
    pub(super) async fn delete(&self, params: &DeleteParams) -> Result<bool, Error> {
        let request = self.request.delete(&self.name, params).map_err(Error::BuildRequest)?;
        Ok(self.client.request_status::<Object>(request).await?.is_right())
    }
}

/// An answer with its metadata in the form in which a watch shows it.
fn plain(mut object: Object) -> Object {
    if let Some(metadata) = object.0.get_mut("metadata")
        && let Ok(typed) = ObjectMeta::deserialize(&*metadata)
        && let Ok(plain) = serde_json::to_value(typed)
    {
        *metadata = plain;
    }
    object
}
