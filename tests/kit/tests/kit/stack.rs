//! The whole system starts, survives a crash of its parts, and stops.

use std::time::{Duration, Instant};

use olm_kit::{Options, Stack};

#[tokio::test]
async fn stack_processes_start_survive_a_kill_and_stop() {
    let started = Instant::now();
    let mut stack = Stack::start_with(&Options::default(), |program| program).await.unwrap();
    eprintln!("up in {:.1?}", started.elapsed());
    for process in [&mut stack.catalogd, &mut stack.operator_controller] {
        let name = process.name().to_owned();
        assert!(process.memory().unwrap().resident > 1 << 20, "{name}");
        let first = process.child().pid();
        process.kill9();
        assert!(process.memory().is_err(), "{name}");
        process.restart().await.unwrap();
        assert_ne!(process.child().pid(), first, "{name}");
        assert!(process.stop(), "{name} did not end well on TERM: {}", process.child().describe_end());
        assert!(process.child().wait(Duration::ZERO), "{name}");
    }
}
