//! Prints the objects of a bundle directory as one JSON list, and warnings to standard error.
//!
//! ```text
//! cargo run -p olm-bundle --example render -- DIRECTORY INSTALL_NAMESPACE [CONFIG_AS_JSON]
//! ```

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use olm_bundle::{RegistryV1, RenderOptions, render_with_report};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name the bundle's directory")?;
    let mut options = RenderOptions::new(arguments.next().ok_or("name the install namespace")?);
    options.config = arguments.next().map(|config| serde_json::from_str(&config)).transpose()?;
    let rendered = render_with_report(&RegistryV1::load_dir(Path::new(&directory))?, &options)?;
    for warning in &rendered.warnings {
        writeln!(std::io::stderr(), "warning: {warning}")?;
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": rendered.objects});
    writeln!(std::io::stdout(), "{list}")?;
    Ok(())
}
