//! Entry point of catalogd.

fn main() -> std::process::ExitCode {
    catalogd::main(&olm_runtime::build!())
}
