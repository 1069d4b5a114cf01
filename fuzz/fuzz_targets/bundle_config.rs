//! Foreign bytes as a bundle's configuration: accepted or refused with a sentence.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_bundle::{Gates, InstallMode, read_config};

fuzz_target!(|input: &[u8]| {
    let Some((modes, config)) = input.split_first() else { return };
    let Ok(config) = serde_json::from_slice(config) else { return };
    let supported = InstallMode::ALL.into_iter().enumerate().filter(|(bit, _)| modes & (1 << bit) != 0);
    let supported = supported.map(|(_, mode)| mode).collect();
    if let Err(error) = read_config(Some(&config), &supported, "operators", Gates::default()) {
        assert!(!error.to_string().is_empty());
    }
});
