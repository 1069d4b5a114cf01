//! Compares generated namespaces with the resolver of OLM Classic: `oracle PROGRAM [CASES [SEED]]`.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use olm_solver::testing::oracle::compare;

#[expect(clippy::disallowed_methods, reason = "the default seed is the time")]
fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let program = arguments.first().ok_or("usage: oracle PROGRAM [CASES [SEED]]")?;
    let cases = arguments.get(1).map_or(Ok(20_000), |text| text.parse())?;
    let seed = match arguments.get(2) {
        Some(text) => text.parse()?,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("classic oracle: seed {seed}, {cases} cases (repeat with N={cases} SEED={seed})");
    let comparison = compare(Path::new(program), seed, cases)?;
    println!("classic oracle: {comparison}");
    if comparison.differences.is_empty() && cases >= 1_000 {
        comparison.check_mix()?;
    }
    Ok(if comparison.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
