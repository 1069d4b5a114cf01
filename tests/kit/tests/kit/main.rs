//! The test kit does what tests rely on: it starts, stops and cleans up.

mod cluster;
mod commands;
mod registry;
mod sample;
mod stack;
