//! Comparisons of CRDs and schemas: tables by rule, and properties.

mod crd_cases;
mod properties;
mod property_cases;
