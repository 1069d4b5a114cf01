//! Where the programs are that we run but do not write in Rust: the control plane, kwok, the registry, opm.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The folder of programs that `make tools` builds.
#[derive(Debug, Clone)]
pub struct Tools {
    bin: PathBuf,
}

impl Tools {
    /// `OLM_TOOLS` if set (make sets it), else the output of `hack/tools/build.sh`, which builds what is missing.
    pub fn locate() -> Result<&'static Self> {
        static FOUND: OnceLock<Result<Tools>> = OnceLock::new();
        FOUND.get_or_init(find).as_ref().map_err(|problem| anyhow::anyhow!("{problem:#}"))
    }

    /// The folder.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.bin.join(name);
        if !path.is_file() {
            bail!("{} has no program {name}; run `make tools`", self.bin.display());
        }
        Ok(path)
    }

    /// A command that runs one program.
    pub fn command(&self, name: &str) -> Result<Command> {
        Ok(Command::new(self.program(name)?))
    }
}

fn find() -> Result<Tools> {
    if let Some(bin) = std::env::var_os("OLM_TOOLS").filter(|value| !value.is_empty()) {
        return Ok(Tools { bin: bin.into() });
    }
    let script = repository().join("hack/tools/build.sh");
    let output = Command::new(&script)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last() {
        Some(bin) if output.status.success() => Ok(Tools { bin: bin.into() }),
        _ => bail!("{} failed ({}); run `make tools` to see why", script.display(), output.status),
    }
}

/// Removes from the environment of a command that builds what cargo and make set for this process: build scripts that read such variables
/// (that of ring does) would run again, and everything that depends on their crates would be compiled again, then and at the next build.
pub fn without_build_variables(command: &mut Command) -> &mut Command {
    const NAMES: [&str; 5] =
        ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"];
    const BEGINNINGS: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    for (name, _) in std::env::vars_os() {
        let is_of_a_build = name.to_str().is_some_and(|name| {
            NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        });
        if is_of_a_build {
            command.env_remove(name);
        }
    }
    command
}

/// The root of the repository that this crate was built from.
pub fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// The shared reference material (`$OLM_SHARED`, else `../shared` beside the repository), when it is there.
pub fn shared_material() -> Option<PathBuf> {
    let folder = match std::env::var_os("OLM_SHARED").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => repository().parent()?.join("shared"),
    };
    folder.is_dir().then_some(folder)
}
