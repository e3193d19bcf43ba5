//! What makes a resource of something that one thread at a time may use: whoever has the resource mutably has it alone.
//!
//! Nothing waits for the lock: it is there for the type alone.

use std::sync::{Mutex, PoisonError};

/// Something that may move between threads and is never shared.
#[derive(Debug)]
pub(crate) struct Held<T>(Mutex<T>);

impl<T> Held<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self(Mutex::new(inner))
    }

    pub(crate) fn get(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
