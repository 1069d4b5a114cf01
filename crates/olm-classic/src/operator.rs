//! The Operator object: the components of an operator over all namespaces.
