//! The generated parts of `docs/internals/real-content.md`.

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;

/// The tests of one program run at the same time and write the same file.
static PAGE: Mutex<()> = Mutex::new(());

/// Compares one part of the page with what it should be; `OLM_WRITE_DOCS` writes it.
pub(crate) fn check(part: &str, text: &str) -> Result<()> {
    let path = olm_kit::repository().join("docs/internals/real-content.md");
    let _one = PAGE.lock();
    let page = std::fs::read_to_string(&path)?;
    let (begin, end) = (format!("<!-- {part}: begin -->\n"), format!("\n<!-- {part}: end -->"));
    let marks = || format!("{} does not mark the part {part}", path.display());
    let (head, rest) = page.split_once(&begin).with_context(marks)?;
    let (now, tail) = rest.split_once(&end).with_context(marks)?;
    if std::env::var_os("OLM_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{text}{end}{tail}"))?;
        return Ok(());
    }
    let page = path.display();
    ensure!(now == text, "{page} is not current; OLM_WRITE_DOCS=1 writes it. Now:\n{text}\nthere:\n{now}");
    Ok(())
}

/// A text as it may stand in a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    text.replace('\n', "; ").replace('|', "\\|")
}
