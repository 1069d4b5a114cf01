//! catalogd without a control plane: hostile clients, kills while content is written, the server.

mod hostile;
mod kill;
mod server;
mod support;
