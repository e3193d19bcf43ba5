//! Checks of pointer arguments: texts, bytes, and outputs.
//!
//! Null pointers and impossible lengths are detected here. The caller guarantees that the memory is valid.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use crate::error::Failure;
use crate::status::DrumfireStatus;

/// Reads a text that ends with a NUL byte after at most `limit_bytes`. Returns `None` for null.
///
/// # Errors
/// Returns `TextTooLong` or `BadText`, with the name of the argument.
///
/// # Safety
/// `pointer` is null, or points to a text that ends with a NUL byte, or points to more than `limit_bytes` readable
/// bytes. The bytes do not change during `'a`.
pub(crate) unsafe fn text<'a>(
    name: &str,
    pointer: *const c_char,
    limit_bytes: usize,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    let start = pointer.cast::<u8>();
    // SAFETY: no earlier byte is the NUL byte, so the caller guarantees that this byte is readable
    let is_end = |at: &usize| unsafe { *start.add(*at) } == 0;
    let length = (0..=limit_bytes).find(is_end).ok_or_else(|| {
        let text = format!("{name} is longer than {limit_bytes} bytes or has no NUL byte at its end");
        Failure::new(DrumfireStatus::TextTooLong, text)
    })?;
    // SAFETY: the bytes before the NUL byte were just read, and the caller guarantees that they do not change
    let bytes = unsafe { std::slice::from_raw_parts(start, length) };
    let text = std::str::from_utf8(bytes);
    text.map(Some).map_err(|error| Failure::new(DrumfireStatus::BadText, format!("{name}: {error}")))
}

/// Returns `count` bytes. The pointer may be null if `count` is zero.
///
/// # Errors
/// Returns `NullPointer`, or `TooLarge` for more bytes than an allocation can have.
///
/// # Safety
/// `pointer` is null or points to `count` readable bytes, which do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, count: usize) -> Result<&'a [u8], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null("bytes"));
    }
    if isize::try_from(count).is_err() {
        return Err(Failure::new(DrumfireStatus::TooLarge, "bytes_count exceeds the address space"));
    }
    // SAFETY: the pointer is not null and the length fits an allocation; the caller guarantees the rest
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Copies `from` and then `end` into a buffer. Copies nothing if they do not fit or the buffer is null.
///
/// # Errors
/// Returns `BufferTooSmall`, or `NullPointer` for a null buffer with a capacity.
///
/// # Safety
/// `buffer` is null or points to `capacity` writable bytes that do not overlap `from`.
pub(crate) unsafe fn copy(from: &[u8], end: &[u8], buffer: *mut u8, capacity: usize) -> Result<(), Failure> {
    if buffer.is_null() && capacity != 0 {
        return Err(Failure::null("buffer"));
    }
    let needed = from.len() + end.len();
    if needed > capacity {
        let text = format!("the buffer has {capacity} bytes, but {needed} are needed");
        return Err(Failure::new(DrumfireStatus::BufferTooSmall, text));
    }
    let mut to = buffer;
    for part in [from, end] {
        // SAFETY: both parts fit, and a null buffer has capacity 0, so that both parts are empty and nothing is copied
        unsafe {
            std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            to = to.wrapping_add(part.len());
        }
    }
    Ok(())
}

/// Returns the value of a required pointer.
pub(crate) fn required<'a, T>(name: &str, pointer: Option<&'a T>) -> Result<&'a T, Failure> {
    pointer.ok_or_else(|| Failure::null(name))
}

/// Returns the target of a required output pointer.
pub(crate) fn output<'a, T>(
    name: &str,
    pointer: Option<&'a mut MaybeUninit<T>>,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    pointer.ok_or_else(|| Failure::null(name))
}
