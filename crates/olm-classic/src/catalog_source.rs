//! Catalog sources: validation, image template, poll times, health and status.
