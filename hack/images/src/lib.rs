//! The OCI images of a release: one a program and platform, joined by an index, with a bill of materials beside it.
//!
//! Nothing here runs a container or a daemon, and nothing is downloaded: an image is the program, the public certificate
//! authorities, a user that is not root, and labels. The same programs, version and date give the same bytes.
//!
//! [`release::make`] writes OCI image layouts; [`push::push`] sends one to a registry. What the programs are is the caller's
//! matter (the Makefile's). [`stamp`], [`notes`] and [`krew`] are for the other files of a release.

pub mod image;
pub mod krew;
pub mod layout;
pub mod notes;
pub mod platform;
pub mod push;
pub mod release;
pub mod sbom;
pub mod stamp;
