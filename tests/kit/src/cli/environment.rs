//! The variables of a demo, and the file that has them for other terminals.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use olm_kit::{Ca, Cluster, Tools, built};

use super::demo::relative;
use super::print_line;

/// The variables with which kubectl and its plugin need no more flags.
pub(super) struct Environment {
    file: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Drop for Environment {
    /// The variables of a control plane that is gone would only mislead.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

impl Environment {
    /// Of a demo in the folder `dir`.
    pub(super) fn new(dir: &Path, cluster: &Cluster, ca: &Ca) -> Result<Self> {
        let folder = |program: PathBuf| -> Result<String> {
            Ok(program.parent().context("a program without a folder")?.display().to_string())
        };
        let path = std::env::var("PATH").unwrap_or_default();
        let (plugin, kubectl) =
            (folder(built("kubectl-olm")?)?, folder(Tools::locate()?.program("kubectl")?)?);
        let ca = ca.certificate();
        let cas = ca.parent().context("a certificate without a folder")?;
        let variables = vec![
            ("KUBECONFIG", cluster.kubeconfig().display().to_string()),
            ("PATH", format!("{plugin}:{kubectl}:{path}")),
            ("KUBECTL_OLM_CATALOGD_CAS_DIR", cas.display().to_string()),
            ("KUBECTL_OLM_CA_FILE", ca.display().to_string()),
            ("KUBECTL_OLM_CACHE_DIR", dir.join("cache").display().to_string()),
        ];
        Ok(Self { file: dir.join("env"), variables })
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Writes the file for `source`, and prints that command.
    pub(super) fn write(&self) -> Result<()> {
        let lines = self.variables().map(|(name, value)| match (name, value) {
            // what the shell has then, not what this program has
            ("PATH", value) => {
                let own: Vec<&str> = value.splitn(3, ':').take(2).collect();
                format!("export PATH={}:\"$PATH\"\n", quoted(&own.join(":")))
            }
            (name, value) => format!("export {name}={}\n", quoted(value)),
        });
        std::fs::write(&self.file, lines.collect::<String>())?;
        let source = relative(&self.file);
        print_line(format_args!("  source {source}      # kubectl and kubectl olm without more flags"));
        Ok(())
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_file_is_there_as_long_as_the_demo() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        let variables = vec![
            ("KUBECONFIG", "/it's/kubeconfig".to_owned()),
            ("PATH", "/plugin:/kubectl:/bin:/sbin".to_owned()),
        ];
        let environment = Environment { file: file.clone(), variables };
        environment.write().unwrap();
        let want = "export KUBECONFIG='/it'\\''s/kubeconfig'\nexport PATH='/plugin:/kubectl':\"$PATH\"\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), want);
        drop(environment);
        assert!(!file.exists());
    }
}
