//! Entry point of catalogd.

fn main() -> std::process::ExitCode {
    catalogd::main()
}
