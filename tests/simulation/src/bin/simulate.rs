//! Runs simulations: many seeds, each in a process of its own, or one seed with a trace.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    olm_simulation::command::main()
}
