//! PackageManifests: the packages of catalog sources as their users list them.
