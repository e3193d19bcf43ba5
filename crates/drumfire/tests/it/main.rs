//! Tests of the public interface that share one program. Tests that count allocations or install something for the whole process
//! have programs of their own.

#[cfg(feature = "testing")]
mod admission;
#[cfg(feature = "tokio")]
mod asynchronous;
#[cfg(feature = "testing")]
mod flight;
mod server;
mod single;
#[cfg(feature = "testing")]
mod testing;
