//! The status that every call returns.
//!
//! The numbers are part of the ABI: no number changes its meaning, and new ones are appended.

use std::ffi::CStr;

/// The result of a call. Zero is success. All other values are errors; after an error the call had no effect, unless
/// the value's description says otherwise.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireStatus {
    /// The call succeeded.
    Ok = 0,
    /// A required pointer is null.
    NullPointer = 1,
    /// No client has this handle. It may have been freed.
    BadHandle = 2,
    /// The client belongs to another thread: the thread that connected it.
    WrongThread = 3,
    /// A setting or a number is not valid; `drumfire_last_error` names it.
    BadArgument = 4,
    /// A text exceeds its maximum length or has no NUL byte.
    TextTooLong = 5,
    /// A text is not UTF-8.
    BadText = 6,
    /// The server's address is invalid: write `203.0.113.9:7777` or `[2001:db8::1]:7777`.
    BadAddress = 7,
    /// The server's public key is invalid.
    BadKey = 8,
    /// The token is invalid, or is for another protocol id.
    BadToken = 9,
    /// The system refused a socket or provided no entropy.
    System = 10,
    /// There are already `DRUMFIRE_CLIENTS_MAX` clients: free one.
    TooManyClients = 11,
    /// The connection is closing or closed.
    Closed = 12,
    /// The connection's send memory is full: send less, or wait for `DRUMFIRE_EVENT_KIND_WRITABLE`.
    Full = 13,
    /// The message exceeds the limit of its mode or of the settings.
    TooLarge = 14,
    /// The buffer is too small. The required size was written, and the call had no other effect.
    BufferTooSmall = 15,
    /// The server has not issued a resume token yet, or issues none.
    NoResumeToken = 16,
    /// A bug in the library caused a panic, which was caught. The client of the call is closed, and its handle is
    /// invalid.
    Panicked = 17,
    /// The client reconnects and has no connection now: send after the next `DRUMFIRE_EVENT_KIND_CONNECTED`.
    NotConnected = 18,
}

impl DrumfireStatus {
    const ALL: [Self; 19] = [
        Self::Ok,
        Self::NullPointer,
        Self::BadHandle,
        Self::WrongThread,
        Self::BadArgument,
        Self::TextTooLong,
        Self::BadText,
        Self::BadAddress,
        Self::BadKey,
        Self::BadToken,
        Self::System,
        Self::TooManyClients,
        Self::Closed,
        Self::Full,
        Self::TooLarge,
        Self::BufferTooSmall,
        Self::NoResumeToken,
        Self::Panicked,
        Self::NotConnected,
    ];

    /// Returns a description of any number.
    pub(crate) fn text_of(number: i32) -> &'static CStr {
        let status = Self::ALL.into_iter().find(|status| *status as i32 == number);
        status.map_or(c"unknown status", Self::text)
    }

    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"success",
            Self::NullPointer => c"a required pointer is null",
            Self::BadHandle => c"no client has this handle; it may have been freed",
            Self::WrongThread => c"the client belongs to the thread that connected it",
            Self::BadArgument => c"a setting or a number is not valid",
            Self::TextTooLong => c"a text exceeds its maximum length or has no NUL byte",
            Self::BadText => c"a text is not UTF-8",
            Self::BadAddress => {
                c"the server's address is invalid: write 203.0.113.9:7777 or [2001:db8::1]:7777"
            }
            Self::BadKey => c"the server's public key is invalid",
            Self::BadToken => c"the token is invalid, or is for another protocol id",
            Self::System => c"the system refused a socket or provided no entropy",
            Self::TooManyClients => c"the maximum number of clients exists: free one",
            Self::Closed => c"the connection is closing or closed",
            Self::Full => c"the connection's send memory is full: send less, or later",
            Self::TooLarge => c"the message exceeds the limit of its mode or of the settings",
            Self::BufferTooSmall => c"the buffer is too small",
            Self::NoResumeToken => c"the server has not issued a resume token yet, or issues none",
            Self::Panicked => c"a bug in the library caused a panic, and the client was closed",
            Self::NotConnected => {
                c"the client reconnects and has no connection now: send after its next Connected event"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_status_has_its_own_number_and_text() {
        for (number, status) in (0..).zip(DrumfireStatus::ALL) {
            assert_eq!(status as i32, number);
        }
        let numbers = -1..=i32::try_from(DrumfireStatus::ALL.len()).unwrap();
        let texts: HashSet<_> = numbers.map(DrumfireStatus::text_of).collect();
        assert_eq!(
            texts.len(),
            DrumfireStatus::ALL.len() + 1,
            "all statuses and the text of unknown numbers"
        );
    }
}
