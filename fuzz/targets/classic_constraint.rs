//! `classic_constraint` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(init: olm_fuzz::expect_engine_panics(), |input: &[u8]| olm_fuzz::run("classic_constraint", input));
