//! Generated namespaces, resolved by `olm-solver` and by the resolver of OLM Classic. No disagreement is tolerated but the one of decision 50.
//!
//! The same namespaces in each run, so that a failure is one of the commit; `OLM_ORACLE_SEED` takes others, `make oracle-classic` more.

use olm_kit::Tools;
use olm_solver::testing::oracle::compare;

const CASES: u64 = 300;
const SEED: u64 = 3;

#[test]
fn classic_resolver_agrees_on_generated_namespaces() {
    let program = Tools::locate().unwrap().program("oracle-classic-resolver").unwrap();
    let seed = std::env::var("OLM_ORACLE_SEED").map_or_else(
        |_| SEED,
        |text| text.parse().unwrap_or_else(|_| panic!("OLM_ORACLE_SEED is no number: {text}")),
    );
    println!("classic oracle: seed {seed} (repeat with OLM_ORACLE_SEED={seed})");
    let comparison = compare(&program, seed, CASES).unwrap();
    println!("classic oracle: {comparison}");
    assert!(comparison.differences.is_empty(), "{comparison}");
    assert_eq!(comparison.cases(), usize::try_from(CASES).unwrap());
    comparison.check_mix().unwrap();
}
