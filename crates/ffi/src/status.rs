//! What every call answers.
//!
//! The numbers are part of the ABI: none changes its meaning, new ones come at the end.

use std::ffi::CStr;

/// How a call went. Zero is well, everything else is an error after which nothing was done unless its line says otherwise.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrumfireStatus {
    /// Done.
    Ok = 0,
    /// A pointer that must not be null is.
    NullPointer = 1,
    /// No client has this handle, or none any more.
    BadHandle = 2,
    /// The client belongs to another thread: the one that connected it.
    WrongThread = 3,
    /// A setting or a number is none that there is; `drumfire_last_error` names it.
    BadArgument = 4,
    /// A text is longer than it may be, or has no end.
    TextTooLong = 5,
    /// A text is not UTF-8.
    BadText = 6,
    /// The server's address is not one: say `203.0.113.9:7777` or `[2001:db8::1]:7777`.
    BadAddress = 7,
    /// The server's public key is not one.
    BadKey = 8,
    /// The token is not one, or is for another protocol id.
    BadToken = 9,
    /// The system refused a socket or gave no entropy.
    System = 10,
    /// There are `DRUMFIRE_CLIENTS_MAX` clients: free one.
    TooManyClients = 11,
    /// The connection is closing or over.
    Closed = 12,
    /// The connection's send memory is full: send less, or later.
    Full = 13,
    /// The message is longer than its mode or the settings allow.
    TooLarge = 14,
    /// The buffer is too small; how large it must be was written, and nothing was taken.
    BufferTooSmall = 15,
    /// There is none: the server gave no token to come back with, or not yet.
    NotThere = 16,
    /// A fault of the library, which was caught. The client it happened to is closed, and its handle is stale.
    Panicked = 17,
    /// The client reconnects by itself and has no connection now: send after its next `DRUMFIRE_EVENT_KIND_CONNECTED`.
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
        Self::NotThere,
        Self::Panicked,
        Self::NotConnected,
    ];

    /// One line for people, of any number a program may hold.
    pub(crate) fn text_of(number: i32) -> &'static CStr {
        let status = Self::ALL.into_iter().find(|status| *status as i32 == number);
        status.map_or(c"this number is no status", Self::text)
    }

    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"done",
            Self::NullPointer => c"a pointer that must not be null is",
            Self::BadHandle => c"no client has this handle, or none any more",
            Self::WrongThread => c"the client belongs to the thread that connected it",
            Self::BadArgument => c"a setting or a number is none that there is",
            Self::TextTooLong => c"a text is longer than it may be, or has no end",
            Self::BadText => c"a text is not UTF-8",
            Self::BadAddress => {
                c"the server's address is not one: say 203.0.113.9:7777 or [2001:db8::1]:7777"
            }
            Self::BadKey => c"the server's public key is not one",
            Self::BadToken => c"the token is not one, or is for another protocol id",
            Self::System => c"the system refused a socket or gave no entropy",
            Self::TooManyClients => c"there are as many clients as there may be: free one",
            Self::Closed => c"the connection is closing or over",
            Self::Full => c"the connection's send memory is full: send less, or later",
            Self::TooLarge => c"the message is longer than its mode or the settings allow",
            Self::BufferTooSmall => c"the buffer is too small",
            Self::NotThere => c"there is none, or not yet",
            Self::Panicked => c"a fault of the library was caught, and its client closed",
            Self::NotConnected => {
                c"the client reconnects and is not connected now: send after its next Connected event"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_status_has_its_place_and_a_text_of_its_own() {
        for (number, status) in (0..).zip(DrumfireStatus::ALL) {
            assert_eq!(status as i32, number);
        }
        let numbers = -1..=i32::try_from(DrumfireStatus::ALL.len()).unwrap();
        let texts: HashSet<_> = numbers.map(DrumfireStatus::text_of).collect();
        assert_eq!(texts.len(), DrumfireStatus::ALL.len() + 1, "those and one for numbers that are none");
    }
}
