//! The examples of drumfire are the files next to this package's manifest. This library compiles and runs the code of
//! the README as a test.
#![forbid(unsafe_code)]

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
