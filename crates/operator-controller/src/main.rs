//! Entry point of operator-controller.

fn main() -> std::process::ExitCode {
    operator_controller::main(&olm_runtime::build!())
}
