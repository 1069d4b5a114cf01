//! Operator groups: targets, install modes, provided APIs, roles, annotations and copied CSVs.
