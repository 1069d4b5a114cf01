//! Foreign bytes: one function for each family of parsers, with what must hold for every input.
//!
//! The functions are what libFuzzer calls (`targets/`, `make fuzz`) and what an ordinary test feeds the committed seeds
//! (`tests/seeds.rs`, `make test`). They panic when an invariant is broken, and for nothing else: an error is a valid result.
//! Table of targets and invariants: docs/internals/fuzzing.md.
//!
//! Inputs with several parts are texts whose parts are separated by the line `%%%`, so that seeds can be read and written by
//! hand; a part that is missing is empty.

mod bundles;
mod catalogs;
mod classic;
mod crds;
mod files;
mod layers;
mod references;
mod registry;
mod scenarios;
mod secrets;
mod server;
mod signatures;
mod solver;
mod texts;
mod versions;
mod yaml;

pub use signatures::accepted;

/// A target: any bytes, no answer.
pub type Target = fn(&[u8]);

/// Every target by name. A file in `targets/` and a folder in `seeds/` have the same name.
pub const TARGETS: &[(&str, Target)] = &[
    ("bundle", bundles::bundle),
    ("bundle_config", bundles::config),
    ("catalogd_http", server::catalogd_http),
    ("classic_constraint", classic::constraint),
    ("classic_csv", classic::csv),
    ("crd_safety", crds::crd_safety),
    ("fbc", catalogs::fbc),
    ("grpc_registry", registry::grpc_registry),
    ("indexignore", texts::indexignore),
    ("layer", layers::layer),
    ("manifest", layers::manifest),
    ("references", references::references),
    ("resolve", catalogs::resolve),
    ("scenarios", scenarios::scenarios),
    ("secrets", secrets::secrets),
    ("signature", signatures::signature),
    ("solver", solver::solver),
    ("stored", files::index_and_cache),
    ("versions", versions::versions),
    ("yaml", yaml::yaml),
];

/// Runs the target of this name; an unknown name is an error of the build.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| target);
    assert!(target.is_some(), "there is no target {name}");
    if let Some(target) = target {
        target(input);
    }
}

/// Lets a panic of the YAML engine pass, which olm-yaml catches; any other ends the program, as libFuzzer wants it.
pub fn expect_engine_panics() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.location().is_none_or(|place| !place.file().contains("/libyaml-safer-")) {
            abort(panic);
        }
    }));
}

/// The parts of an input, at most `N`.
fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    const LINE: &[u8] = b"\n%%%\n";
    let mut rest = input;
    let mut parts: [&[u8]; N] = [&[]; N];
    for (at, part) in parts.iter_mut().enumerate() {
        match rest.windows(LINE.len()).position(|found| found == LINE).filter(|_| at + 1 < N) {
            Some(end) => (*part, rest) = (&rest[..end], &rest[end + LINE.len()..]),
            None => (*part, rest) = (rest, &[]),
        }
    }
    parts
}

/// The parts as text; what is no UTF-8 is replaced.
fn texts<const N: usize>(input: &[u8]) -> [String; N] {
    parts::<N>(input).map(|part| String::from_utf8_lossy(part).into_owned())
}
