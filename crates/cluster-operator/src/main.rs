//! Entry point of cluster-operator.

fn main() -> std::process::ExitCode {
    cluster_operator::main(&olm_runtime::build!())
}
