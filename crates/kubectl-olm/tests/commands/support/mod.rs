//! Running the program as a user would, without anything of this machine.

pub(crate) mod apiserver;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Exit code, standard output and standard error; the home is `home`, and credentials, certificates and caches of this machine
/// do not count.
pub(crate) fn olm(home: &Path, arguments: &[&str]) -> Result<(i32, String, String)> {
    let output = command(home, arguments).output()?;
    let code = output.status.code().context("killed")?;
    Ok((code, String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

/// The same, not started.
pub(crate) fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"));
    for name in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "KUBECONFIG"] {
        command.env_remove(name);
    }
    for proxy in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(proxy);
    }
    command.env("HOME", home).args(arguments);
    command
}
