//! Types that `loom` and `shuttle` do not provide, built from types that both provide.

use std::sync::atomic::Ordering;

use super::AtomicBool;
#[cfg(feature = "tokio")]
use super::{Mutex, lock};
#[cfg(feature = "tokio")]
pub(crate) use notify::Notify;

/// `OnceLock` of the standard library, with a flag for its state that the tools observe. A second call of `set` fails.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
    #[cfg(feature = "tokio")]
    making: Mutex<()>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            is_set: AtomicBool::new(false),
            #[cfg(feature = "tokio")]
            making: Mutex::new(()),
        }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let _making = lock(&self.making);
        if let Some(value) = self.value.get() {
            return value;
        }
        let made = make();
        let value = self.value.get_or_init(|| made);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

#[cfg(feature = "tokio")]
mod notify {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::sync::futures::Notified;

    use super::{Mutex, lock};

    /// `Notify` of `tokio`. Each of its steps runs under a lock that the tools observe, so a step is atomic in a model.
    #[derive(Debug, Default)]
    pub(crate) struct Notify {
        steps: Mutex<()>,
        inner: tokio::sync::Notify,
    }

    impl Notify {
        pub(crate) fn notify_one(&self) {
            let _step = lock(&self.steps);
            self.inner.notify_one();
        }

        pub(crate) fn notify_waiters(&self) {
            let _step = lock(&self.steps);
            self.inner.notify_waiters();
        }

        pub(crate) fn notified(&self) -> ModelledNotified<'_> {
            let _step = lock(&self.steps);
            ModelledNotified { steps: &self.steps, inner: Some(Box::pin(self.inner.notified())) }
        }
    }

    /// The future of one wait.
    pub(crate) struct ModelledNotified<'a> {
        steps: &'a Mutex<()>,
        /// `None` during the drop, which has to run under the lock too.
        inner: Option<Pin<Box<Notified<'a>>>>,
    }

    impl Future for ModelledNotified<'_> {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let steps = self.steps;
            let _step = lock(steps);
            self.inner.as_mut().map_or(Poll::Ready(()), |inner| inner.as_mut().poll(context))
        }
    }

    impl Drop for ModelledNotified<'_> {
        fn drop(&mut self) {
            let _step = lock(self.steps);
            // The dropped future can pass its notification on to another one, which is a step as well.
            self.inner = None;
        }
    }
}
