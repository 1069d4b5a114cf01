//! Recordings of the pages' commands with what they print, as asciicast files (`asciinema play FILE`).

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::shell::Line;

/// The folder for recordings; without it none is made.
const FOLDER: &str = "OLM_RECORDINGS";
const WIDTH: usize = 160;
const HEIGHT: usize = 48;
/// A player waits no longer than this between two lines, in seconds.
const LONGEST_PAUSE: f64 = 2.0;
/// Between a command and the next one, so that a viewer can read.
const PAUSE: Duration = Duration::from_millis(1500);

/// The recording of one page.
#[derive(Default)]
pub(crate) struct Recording {
    title: String,
    elapsed: Duration,
    events: String,
}

impl Recording {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, command: &str, output: &[Line]) {
        for line in command.lines() {
            self.event(&format!("\u{1b}[1m$ {line}\u{1b}[0m\n"));
        }
        let before = self.elapsed;
        for line in output {
            self.elapsed = before + line.after;
            self.event(&line.text);
        }
        self.elapsed += PAUSE;
    }

    fn event(&mut self, text: &str) {
        let text = text.replace('\n', "\r\n");
        let _ = writeln!(self.events, "{}", json!([self.elapsed.as_secs_f64(), "o", text]));
    }

    /// The file's text.
    fn text(&self) -> String {
        let head = json!({"version": 2, "width": WIDTH, "height": HEIGHT, "title": self.title, "idle_time_limit": LONGEST_PAUSE});
        format!("{head}\n{}", self.events)
    }

    /// Writes the file, if recordings are asked for and the page has commands.
    pub(crate) fn save(&self) -> Result<()> {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return Ok(()) };
        if self.events.is_empty() {
            return Ok(());
        }
        let name = self.title.trim_end_matches(".md").replace('/', "-");
        let path = folder.join(format!("{name}.cast"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&path, self.text()).with_context(|| path.display().to_string())?;
        Ok(())
    }
}

#[test]
fn recording_is_an_asciicast_with_relative_times() -> Result<()> {
    let mut recording = Recording::new("README.md");
    let line = |millis, text: &str| Line { after: Duration::from_millis(millis), text: text.to_owned() };
    recording.add("echo a\necho b", &[line(500, "a\n"), line(700, "b\n")]);
    recording.add("true", &[]);
    let text = recording.text();
    let lines: Vec<serde_json::Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!((&lines[0]["version"], &lines[0]["title"]), (&json!(2), &json!("README.md")));
    let events = [
        json!([0.0, "o", "\u{1b}[1m$ echo a\u{1b}[0m\r\n"]),
        json!([0.0, "o", "\u{1b}[1m$ echo b\u{1b}[0m\r\n"]),
        json!([0.5, "o", "a\r\n"]),
        json!([0.7, "o", "b\r\n"]),
        json!([2.2, "o", "\u{1b}[1m$ true\u{1b}[0m\r\n"]),
    ];
    assert_eq!(lines[1..], events);
    Ok(())
}
