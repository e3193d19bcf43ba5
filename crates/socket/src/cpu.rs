//! How much CPU time the calling thread used: what it did, and not what others did on its core meanwhile.
//!
//! It does not tell the time of day or the time since anything, and knows no other thread.

use std::time::Duration;

use crate::sys;

/// The CPU time that the calling thread used since it began, in the program and in the kernel; `None` where the platform does
/// not tell. One system call.
///
/// ```
/// use drumfire_socket::thread_cpu_time;
///
/// let before = thread_cpu_time();
/// assert!(thread_cpu_time() >= before, "it only grows");
/// ```
#[must_use]
pub fn thread_cpu_time() -> Option<Duration> {
    sys::thread_cpu_time()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_cpu_time_and_another_threads_work_does_not() {
        let Some(before) = thread_cpu_time() else { return };
        let other = std::thread::spawn(|| {
            let mut sum = 0_u64;
            while thread_cpu_time().is_some_and(|used| used < Duration::from_millis(50)) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        });
        other.join().expect("it only counts");
        let waited = thread_cpu_time().expect("it was told before") - before;
        assert!(waited < Duration::from_millis(50), "to wait is no work: {waited:?}");
        let goal = thread_cpu_time().expect("it was told before") + Duration::from_millis(2);
        // Ends only because work counts.
        while thread_cpu_time().is_some_and(|used| used < goal) {}
    }
}
