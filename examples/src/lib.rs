//! The examples of drumfire are files beside this package's manifest; this library holds nothing but the check
//! that the README's code compiles and runs.
#![forbid(unsafe_code)]

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
