//! The program of the library.

fn main() -> std::process::ExitCode {
    xtask::main()
}
