//! catalogd without a control plane: hostile clients, kills while content is written, the server, the allocator's setting.

mod hostile;
mod kill;
mod memory;
mod server;
mod support;
