//! An installation on a real node: our images run by containerd and kubelet, Services by kube-proxy, names by CoreDNS.
//!
//! `make test-node` runs these tests inside the namespaces of one node (`olm-kit node run`), and [`machine`] outside of them.

#![expect(clippy::print_stdout, reason = "helpers of tests that print what they skip, and figures")]

mod certificates;
mod classic;
mod extension;
mod installation;
mod machine;
mod pods;
mod rehearsal;
mod sample;
mod site;
mod volume;
