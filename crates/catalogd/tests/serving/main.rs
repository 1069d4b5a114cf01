//! catalogd without a control plane: hostile clients, kills while content is written, refused images, the server.

mod hostile;
mod kill;
mod refused;
mod server;
mod support;
