//! Enums whose values are words: of the wire, of a flag, of an annotation.

/// Makes an enum with a word for each value: `ALL`, `as_str`, `Display`, and `FromStr`, which reads a word as it is written here.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$of])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of the enum.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word for it.
            #[must_use]
            $vis fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> ::std::result::Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|value| value.as_str() == text);
                found.ok_or_else(|| $crate::UnknownWord::new(text, &Self::ALL.map(Self::as_str)))
            }
        }
    };
}

/// A text that is none of the words of a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither {words}")]
pub struct UnknownWord {
    text: String,
    /// `A, B nor C`.
    words: String,
}

impl UnknownWord {
    /// The text, and the words that there are.
    #[must_use]
    pub fn new(text: &str, words: &[&str]) -> Self {
        let words = match words {
            [others @ .., last] => format!("{} nor {last}", others.join(", ")),
            [] => String::new(),
        };
        Self { text: text.to_owned(), words }
    }
}

#[cfg(test)]
mod tests {
    crate::words! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        enum State {
            #[default]
            New = "New",
            HalfDone = "half-done",
            Done = "Done",
        }
    }

    #[test]
    fn words_are_read_as_they_are_printed() {
        assert_eq!((State::default(), State::ALL.len()), (State::New, 3));
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        let error = "done".parse::<State>().unwrap_err();
        assert_eq!(error.to_string(), "\"done\" is neither New, half-done nor Done");
    }
}
