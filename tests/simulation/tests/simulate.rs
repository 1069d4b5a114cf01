//! A few seeds of the simulation, in the build of tests.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

fn simulate(arguments: &[&str]) -> io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_simulate")).args(arguments).output()
}

#[test]
fn simulation_of_a_seed_repeats_exactly() -> io::Result<()> {
    for (scenario, seed) in [("v1", "3"), ("v1", "8"), ("classic", "1")] {
        let arguments = ["--scenario", scenario, "--seed", seed];
        let (first, second) = (simulate(&arguments)?, simulate(&arguments)?);
        let text = String::from_utf8_lossy(&first.stdout);
        assert!(text.contains("digest"), "{text}{}", String::from_utf8_lossy(&first.stderr));
        assert_eq!(text, String::from_utf8_lossy(&second.stdout), "{scenario}, seed {seed}");
    }
    Ok(())
}

/// A seed that ran before leaves nothing behind.
#[test]
fn simulation_in_a_copy_is_that_of_the_seed() -> io::Result<()> {
    for scenario in ["v1", "classic"] {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_simulate"));
        serve.args(["--scenario", scenario, "--serve"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut worker = serve.spawn()?;
        writeln!(worker.stdin.take().expect("it is piped"), "[3,[]]\n[8,[0]]\n[3,[]]")?;
        let served = worker.wait_with_output()?;
        let ended = "{\"ended\":\"exit status: 0\"}\n";
        let mut expected = Vec::new();
        for arguments in [vec!["--seed", "3"], vec!["--seed", "8", "--without", "0"], vec!["--seed", "3"]] {
            let output = simulate(&[&["--scenario", scenario], arguments.as_slice()].concat())?;
            expected.extend([output.stdout, ended.into()].concat());
        }
        assert_eq!(String::from_utf8_lossy(&served.stdout), String::from_utf8_lossy(&expected), "{scenario}");
    }
    Ok(())
}

#[test]
fn simulation_converges_for_a_few_seeds() -> io::Result<()> {
    let output = simulate(&["--seeds", "12"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("12 schedules") && text.contains(" 0 failed"), "{text}");
    Ok(())
}

#[test]
fn simulation_of_classic_converges_for_a_few_seeds() -> io::Result<()> {
    let output = simulate(&["--scenario", "classic", "--seeds", "12"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("12 schedules") && text.contains(" 0 failed"), "{text}");
    Ok(())
}

/// Seeds that failed before a fix and belong to today's schedules: docs/internals/simulation.md.
#[test]
fn simulation_converges_for_seeds_that_failed() -> io::Result<()> {
    for (scenario, seed) in [("v1", "4941"), ("v1", "12984"), ("v1", "18781"), ("classic", "43")] {
        let output = simulate(&["--scenario", scenario, "--seed", seed])?;
        let text = String::from_utf8_lossy(&output.stdout);
        let is_ok = output.status.success() && text.contains(r#""violation":null"#);
        assert!(is_ok, "{scenario}, seed {seed}: {text}");
    }
    Ok(())
}
