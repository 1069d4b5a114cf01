//! The reader's shell: bash with an empty home, one folder a page, and variables and functions that stay from block to block.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use olm_kit::RunDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// How long a block may take.
const LIMIT: Duration = Duration::from_secs(180);

/// A line that a command printed, with its end.
#[derive(Debug)]
pub(crate) struct Line {
    /// since the command began
    pub(crate) after: Duration,
    pub(crate) text: String,
}

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
        std::fs::write(folder.path().join("state"), "")?;
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
        let (code, lines) = self.run_timed(script).await?;
        Ok((code, text(&lines)))
    }

    /// Runs a script and gives its exit code and the lines that it printed, with the names that pages use.
    pub(crate) async fn run_timed(&self, script: &str) -> Result<(i32, Vec<Line>)> {
        let state = self.folder.path().join("state").display().to_string();
        let whole = format!(
            "exec 2>&1; set -euo pipefail; . '{state}'; set -a\n{}\n{{ export -p; declare -f; }} > '{state}'\n",
            self.here(script)
        );
        let mut command = Command::new("bash");
        command
            .args(["--norc", "--noprofile", "-c", &whole])
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let began = Instant::now();
        let mut child = command.spawn().context("cannot run bash")?;
        let mut stdout = BufReader::new(child.stdout.take().context("no output")?);
        let mut lines = Vec::new();
        let ended = async {
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line).await? > 0 {
                let text = self.as_written(&String::from_utf8_lossy(&line));
                lines.push(Line { after: began.elapsed(), text });
                line.clear();
            }
            child.wait().await
        };
        let ended = tokio::time::timeout(LIMIT, ended).await;
        let Ok(status) = ended else {
            let printed = text(&lines);
            bail!("no end after {} s:\n{script}--- until then it printed\n{printed}", LIMIT.as_secs());
        };
        Ok((status?.code().context("killed")?, lines))
    }

    /// Runs a script that has to succeed.
    pub(crate) async fn must(&self, script: &str) -> Result<String> {
        Ok(text(&self.must_timed(script).await?))
    }

    /// Runs a script that has to succeed, and gives the lines that it printed.
    pub(crate) async fn must_timed(&self, script: &str) -> Result<Vec<Line>> {
        let (code, lines) = self.run_timed(script).await?;
        if code != 0 {
            bail!("exit code {code} of\n{script}--- it printed\n{}", text(&lines));
        }
        Ok(lines)
    }
}

/// What the lines are together.
pub(crate) fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[tokio::test]
async fn docs_shell_keeps_its_state_and_reports_failures() -> Result<()> {
    let environment = vec![("PATH".to_owned(), std::env::var("PATH")?)];
    let names = vec![("example.com".to_owned(), "127.0.0.1:1".to_owned())];
    let shell = Session::new(environment, names)?;
    shell.must("URL=https://example.com; twice() { echo $1 $1; }").await?;
    assert_eq!(shell.must("twice a").await?, "a a\n");
    assert_eq!(shell.must("echo $URL; echo x >&2").await?, "https://example.com\nx\n");
    assert_eq!(shell.run("false\necho never").await?, (1, String::new()));
    assert_eq!(shell.must("echo \"${HOME-no home}\"").await?, "no home\n");
    shell.save("a.txt", "at example.com")?;
    assert_eq!(shell.must("grep -c 127.0.0.1:1 a.txt").await?, "1\n");
    Ok(())
}
