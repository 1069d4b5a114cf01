//! cluster-operator on the real control plane: what `kubectl get co olm` shows, and what it takes for the gate to open and close.

mod deployments;
mod site;
mod view;
mod walk;
