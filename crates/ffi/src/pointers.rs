//! What C hands over by pointer, looked at before it is used: texts, bytes, and places to write to.
//!
//! Null and impossible lengths are found here. That memory is there at all is the caller's promise.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use crate::error::Failure;
use crate::status::DrumfireStatus;

/// A text that ends with a NUL byte after `limit_bytes` at most; `None` for null.
///
/// # Errors
/// `TextTooLong`, `BadText`, with the argument's name.
///
/// # Safety
/// `pointer` is null or leads to a text that ends with a NUL byte, or to more than `limit_bytes` readable bytes. They stay as
/// they are for `'a`.
pub(crate) unsafe fn text<'a>(
    name: &str,
    pointer: *const c_char,
    limit_bytes: usize,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    let start = pointer.cast::<u8>();
    // SAFETY: no byte before this one is the text's end, so the caller promises that this one is there
    let is_end = |at: &usize| unsafe { *start.add(*at) } == 0;
    let length = (0..=limit_bytes).find(is_end).ok_or_else(|| {
        let text = format!("{name} is longer than {limit_bytes} bytes, or no NUL byte ends it");
        Failure::new(DrumfireStatus::TextTooLong, text)
    })?;
    // SAFETY: the bytes before the end were just read, and stay
    let bytes = unsafe { std::slice::from_raw_parts(start, length) };
    let text = std::str::from_utf8(bytes);
    text.map(Some).map_err(|why| Failure::new(DrumfireStatus::BadText, format!("{name}: {why}")))
}

/// So many bytes; null is fine for none.
///
/// # Errors
/// `NullPointer`, `TooLarge` for more than memory can hold.
///
/// # Safety
/// `pointer` is null or leads to `count` readable bytes, which stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, count: usize) -> Result<&'a [u8], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null("bytes"));
    }
    if isize::try_from(count).is_err() {
        return Err(Failure::new(DrumfireStatus::TooLarge, "no memory has so many bytes"));
    }
    // SAFETY: not null, and no longer than memory can be; the rest is the caller's promise
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Copies `from` into a buffer and `end` behind it, if both fit; else, or for a null buffer, nothing.
///
/// # Errors
/// `BufferTooSmall`, and `NullPointer` where a capacity but no buffer is given.
///
/// # Safety
/// `buffer` is null or leads to `capacity` writable bytes, of which `from` has none.
pub(crate) unsafe fn copy(from: &[u8], end: &[u8], buffer: *mut u8, capacity: usize) -> Result<(), Failure> {
    if buffer.is_null() && capacity != 0 {
        return Err(Failure::null("buffer"));
    }
    let needed = from.len() + end.len();
    if needed > capacity {
        let text = format!("the buffer has {capacity} bytes, {needed} are needed");
        return Err(Failure::new(DrumfireStatus::BufferTooSmall, text));
    }
    let mut to = buffer;
    for part in [from, end] {
        // SAFETY: there are as many bytes as both parts have, and null only where both are empty, which copies nothing
        unsafe {
            std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            to = to.wrapping_add(part.len());
        }
    }
    Ok(())
}

/// What a pointer leads to that may be null.
pub(crate) fn present<'a, T>(name: &str, place: Option<&'a T>) -> Result<&'a T, Failure> {
    place.ok_or_else(|| Failure::null(name))
}

/// A place to write to.
pub(crate) fn place<'a, T>(
    name: &str,
    place: Option<&'a mut MaybeUninit<T>>,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    place.ok_or_else(|| Failure::null(name))
}
