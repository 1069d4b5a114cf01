//! Entry point of classic-controller.

fn main() -> std::process::ExitCode {
    classic_controller::main(&olm_runtime::build!())
}
