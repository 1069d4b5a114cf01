//! `grpc.health.v1` for each catalog: one that is served is healthy, whatever service is named.

use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::registry::{CatalogName, Registry};

/// Health of the catalog that the authority names.
pub(super) struct CatalogHealth(pub(super) Registry);

#[tonic::async_trait]
impl Health for CatalogHealth {
    type WatchStream = futures::stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let served = request.extensions().get::<CatalogName>().is_some_and(|name| self.0.serves(name));
        let status = if served { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    /// Clients take this answer for one of a server that is always healthy, and check again themselves.
    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("method Watch not implemented"))
    }
}
