//! For tests of this and other crates.

/// An example of each variant of an enum, `variants!(Enum: pattern => example, …)`: the compiler names a variant that has none.
#[macro_export]
macro_rules! variants {
    ($type:ty: $($pattern:pat => $example:expr),+ $(,)?) => {{
        fn _all(value: &$type) {
            match value { $($pattern => {})+ }
        }
        let examples: Vec<$type> = vec![$($example),+];
        let matching = [$(|value: &$type| matches!(value, $pattern)),+];
        for (example, matching) in examples.iter().zip(matching) {
            assert!(matching(example), "{example:?} stands beside another variant");
        }
        examples
    }};
}
