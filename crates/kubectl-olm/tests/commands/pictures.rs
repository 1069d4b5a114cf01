//! The pictures under `docs/pictures` are what the code draws of published packages. `OLM_UPDATE_PICTURES=1` updates
//! them; check the result afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Package and further arguments.
const PICTURES: [(&str, &[&str]); 3] = [
    ("rhtas-operator", &["--installed", "1.2.1"]),
    ("gatekeeper-operator-product", &["--installed", "3.14.0"]),
    ("opendatahub-operator", &[]),
];

#[test]
fn pictures_match_committed_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("OLM_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let catalog = shared.join("data/catalog");
    if !catalog.is_dir() {
        println!("SKIPPED: pictures_match_committed_files: no sample data (set OLM_SHARED)");
        return;
    }
    let update = std::env::var_os("OLM_UPDATE_PICTURES").is_some();
    for (package, options) in PICTURES {
        let output = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"))
            .args(["graph", package, "-o", "svg", "--dir"])
            .arg(&catalog)
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{package}: {}", String::from_utf8_lossy(&output.stderr));
        let file = root.join("docs/pictures").join(format!("{package}.svg"));
        if update {
            std::fs::write(&file, &output.stdout).unwrap();
        }
        let committed = std::fs::read(&file).unwrap();
        assert!(
            committed == output.stdout,
            "{} is not what is drawn now; draw it again with OLM_UPDATE_PICTURES=1",
            file.display()
        );
    }
}
