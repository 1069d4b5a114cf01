//! Runs simulations: many seeds, each in a process of its own, or one seed with a trace.

fn main() -> std::process::ExitCode {
    olm_simulation::command::main()
}
