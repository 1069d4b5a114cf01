//! The reader's shell: bash with an empty home, one folder a page, and variables that stay from block to block.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use olm_kit::RunDir;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

/// How long a block may take.
const LIMIT: Duration = Duration::from_secs(180);

/// A reader's shell on one page.
pub(crate) struct Session {
    folder: RunDir,
    environment: Vec<(String, String)>,
    /// names of the pages, and what replaces them here
    names: Vec<(String, String)>,
}

impl Session {
    /// In a folder of its own, with these variables and nothing else of this process.
    pub(crate) fn new(environment: Vec<(String, String)>, names: Vec<(String, String)>) -> Result<Self> {
        let folder = RunDir::new("reader")?;
        std::fs::create_dir(folder.path().join("work"))?;
        std::fs::write(folder.path().join("variables"), "")?;
        Ok(Self { folder, environment, names })
    }

    /// Where commands run.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// A text with the names that hold here.
    pub(crate) fn here(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (page, here)| text.replace(page, here))
    }

    /// A text with the names that pages use.
    fn as_written(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (page, here)| text.replace(here, page))
    }

    /// Puts a file of the page into the folder.
    pub(crate) fn save(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.work().join(name), self.here(text)).with_context(|| name.to_owned())
    }

    /// Runs a script and gives its exit code and all that it printed, with the names that pages use.
    pub(crate) async fn run(&self, script: &str) -> Result<(i32, String)> {
        let state = self.folder.path().join("variables").display().to_string();
        let text = format!(
            "exec 2>&1; set -euo pipefail; . '{state}'; set -a\n{}\n{{ export -p > '{state}'; }}\n",
            self.here(script)
        );
        let mut command = Command::new("bash");
        command
            .args(["--norc", "--noprofile", "-c", &text])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot run bash")?;
        let mut stdout = child.stdout.take().context("no output")?;
        let mut output = Vec::new();
        let ended = async {
            stdout.read_to_end(&mut output).await?;
            child.wait().await
        };
        let ended = tokio::time::timeout(LIMIT, ended).await;
        let printed = self.as_written(&String::from_utf8_lossy(&output));
        let Ok(status) = ended else {
            bail!("no end after {} s:\n{script}--- until then it printed\n{printed}", LIMIT.as_secs());
        };
        Ok((status?.code().context("killed")?, printed))
    }

    /// Runs a script that has to succeed.
    pub(crate) async fn must(&self, script: &str) -> Result<String> {
        let (code, output) = self.run(script).await?;
        if code != 0 {
            bail!("exit code {code} of\n{script}--- it printed\n{output}");
        }
        Ok(output)
    }
}

#[tokio::test]
async fn docs_shell_keeps_variables_and_reports_failures() -> Result<()> {
    let environment = vec![("PATH".to_owned(), std::env::var("PATH")?)];
    let names = vec![("example.com".to_owned(), "127.0.0.1:1".to_owned())];
    let shell = Session::new(environment, names)?;
    shell.must("URL=https://example.com").await?;
    assert_eq!(shell.must("echo $URL; echo x >&2").await?, "https://example.com\nx\n");
    assert_eq!(shell.run("false\necho never").await?, (1, String::new()));
    assert_eq!(shell.must("echo \"${HOME-no home}\"").await?, "no home\n");
    shell.save("a.txt", "at example.com")?;
    assert_eq!(shell.must("grep -c 127.0.0.1:1 a.txt").await?, "1\n");
    Ok(())
}
