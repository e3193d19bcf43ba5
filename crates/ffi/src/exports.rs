//! The functions on clients that C programs call, each a line or two around the client's own.
//!
//! Everything is judged before the client is asked: handles and threads by `table`, pointers by `pointers`, numbers by `options`.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use drumfire::{Bytes, CLOSE_TEXT_MAX_BYTES, ChannelId, SendError};

use crate::connect::{self, DRUMFIRE_TEXT_MAX_BYTES, DrumfireConfig};
use crate::error::Failure;
use crate::event::DrumfireEvent;
use crate::guard::{alone, with};
use crate::held::Held;
use crate::options::{DrumfireChannelOptions, DrumfireSendOptions};
use crate::pointers::{self, place, present};
use crate::stats::{self, DrumfireState, DrumfireStats};
use crate::status::DrumfireStatus;
use crate::table::{self, DrumfireClient};

/// Bytes of the longest message that any settings allow.
const SENT_MAX_BYTES: usize = 16 << 20;

/// Begins to connect and writes the new client's handle. What comes of it is an event: `Connected`, or `ConnectFailed` after 5 s
/// at most, unless the client is to try again. The client belongs to the calling thread. Free it with `drumfire_client_free`,
/// whatever becomes of the connection.
///
/// # Safety
///
/// Each text of `config` is null or ends with a NUL byte.
// SAFETY: nothing else has names that begin with `drumfire_`; what the caller promises stands above
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_connect(
    config: Option<&DrumfireConfig>,
    client: Option<&mut MaybeUninit<DrumfireClient>>,
) -> DrumfireStatus {
    alone(|| {
        let (config, client) = (present("config", config)?, place("client", client)?);
        // SAFETY: the caller's promise
        let text = |name: &str, pointer| unsafe { pointers::text(name, pointer, DRUMFIRE_TEXT_MAX_BYTES) };
        client.write(table::insert(Held::new(connect::connect(config, text)?))?);
        Ok(())
    })
}

/// Does the I/O: takes in what arrived and sends what is due, waiting for an event for `timeout_ms` milliseconds at most, or not
/// at all with 0. Then take the events with `drumfire_client_receive`; those that were not taken stay first. Call it once per
/// frame, and at least ten times per second.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_poll(client: DrumfireClient, timeout_ms: u32) -> DrumfireStatus {
    with(client, |held| {
        held.poll(Duration::from_millis(timeout_ms.into()));
        Ok(())
    })
}

/// Takes the next event; its kind is `DRUMFIRE_EVENT_KIND_NONE` when there is none until the next poll. Its bytes are borrowed:
/// they stay until the next `drumfire_client_receive`, `_receive_into`, `_poll` or `_free` of this client. It does no I/O.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_receive(
    client: DrumfireClient,
    event: Option<&mut MaybeUninit<DrumfireEvent>>,
) -> DrumfireStatus {
    with(client, |held| {
        place("event", event)?.write(held.receive());
        Ok(())
    })
}

/// Takes the next event and copies its bytes into a buffer of `capacity` bytes. When they do not fit, it answers
/// `DRUMFIRE_STATUS_BUFFER_TOO_SMALL`, the event says in `bytes_count` how many there are, and the same event comes again. Null
/// with a capacity of 0 asks for the size alone.
///
/// # Safety
///
/// `buffer` is null or leads to `capacity` writable bytes.
// SAFETY: nothing else has names that begin with `drumfire_`; what the caller promises stands above
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_receive_into(
    client: DrumfireClient,
    event: Option<&mut MaybeUninit<DrumfireEvent>>,
    buffer: *mut u8,
    capacity: usize,
) -> DrumfireStatus {
    with(client, |held| {
        let place = place("event", event)?;
        // SAFETY: the caller's promise; the bytes that are copied are the library's own
        let (mut taken, copied) =
            held.receive_into(|bytes| unsafe { pointers::copy(bytes, &[], buffer, capacity) });
        if copied.is_ok() && taken.bytes_count != 0 {
            taken.bytes = buffer;
        }
        place.write(taken);
        copied
    })
}

/// Takes a message for the server; it leaves with the next flush or poll. The bytes are copied. `receipt` may be null; else it
/// gets the number by which the message's outcome will be known, or 0 when the options ask for none.
///
/// # Safety
///
/// `bytes` is null or leads to `bytes_count` readable bytes.
// SAFETY: nothing else has names that begin with `drumfire_`; what the caller promises stands above
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_send(
    client: DrumfireClient,
    channel: u16,
    bytes: *const u8,
    bytes_count: usize,
    options: Option<&DrumfireSendOptions>,
    receipt: Option<&mut MaybeUninit<u64>>,
) -> DrumfireStatus {
    with(client, |held| {
        let options = present("options", options)?.read()?;
        // SAFETY: the caller's promise
        let bytes = unsafe { pointers::bytes(bytes, bytes_count) }?;
        // The client judges by its settings, but a copy is made before it is asked.
        if bytes.len() > SENT_MAX_BYTES {
            return Err(SendError::TooLarge { limit_bytes: SENT_MAX_BYTES }.into());
        }
        let drawn = held.client.send(ChannelId(channel), Bytes::copy_from_slice(bytes), options)?;
        if let Some(receipt) = receipt {
            receipt.write(drawn.map_or(0, |drawn| drawn.0.get()));
        }
        Ok(())
    })
}

/// Sends everything that was taken since the last flush or poll: at the end of a frame.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_flush(client: DrumfireClient) -> DrumfireStatus {
    with(client, |held| {
        held.client.flush();
        Ok(())
    })
}

/// Sets how the messages of a channel are sent, from the next flush or poll on, and for the connections to come too.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_set_channel(
    client: DrumfireClient,
    channel: u16,
    options: Option<&DrumfireChannelOptions>,
) -> DrumfireStatus {
    with(client, |held| {
        held.client.set_channel_options(ChannelId(channel), present("options", options)?.read()?);
        Ok(())
    })
}

/// Forgets what came last of a key of a channel in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`, for a thing that is gone.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_forget_key(
    client: DrumfireClient,
    channel: u16,
    key: u64,
) -> DrumfireStatus {
    with(client, |held| {
        held.client.forget_key(ChannelId(channel), key);
        Ok(())
    })
}

/// How far the client has come, as of the last poll.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_state(
    client: DrumfireClient,
    state: Option<&mut MaybeUninit<DrumfireState>>,
) -> DrumfireStatus {
    with(client, |held| {
        place("state", state)?.write(stats::state(held.client.state()));
        Ok(())
    })
}

/// What the client counted, and what was last measured of its path; asks for a new measurement, which is there once the events of
/// the next poll were taken.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_stats(
    client: DrumfireClient,
    stats: Option<&mut MaybeUninit<DrumfireStats>>,
) -> DrumfireStatus {
    with(client, |held| {
        place("stats", stats)?.write(stats::shaped(&held.client.stats(), held.measured.as_deref()));
        held.client.request_stats();
        Ok(())
    })
}

/// What the client's clock shows, in nanoseconds since some moment: the one that the server's offset in `DrumfireStats` is for.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_time(
    client: DrumfireClient,
    nanoseconds: Option<&mut MaybeUninit<u64>>,
) -> DrumfireStatus {
    with(client, |held| {
        place("nanoseconds", nanoseconds)?.write(held.client.time().as_nanos());
        Ok(())
    })
}

/// Writes the newest token with which this player comes back to this server, and a NUL byte, into a buffer of `capacity` bytes;
/// for `DrumfireConfig.token`, also after the connection is lost. `needed` may be null; else it gets the bytes that it takes, the
/// NUL byte included. Answers `DRUMFIRE_STATUS_NOT_THERE` where the server gave none. It is a secret: whoever has it can come as
/// this player, once, for ten minutes.
///
/// # Safety
///
/// `buffer` is null or leads to `capacity` writable bytes.
// SAFETY: nothing else has names that begin with `drumfire_`; what the caller promises stands above
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_resume_token(
    client: DrumfireClient,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> DrumfireStatus {
    with(client, |held| {
        let token = held.client.resume_token();
        let token =
            token.ok_or_else(|| Failure::new(DrumfireStatus::NotThere, "the server gave no token"))?;
        let text = token.to_text();
        if let Some(needed) = needed {
            needed.write(text.len() + 1);
        }
        // SAFETY: the caller's promise; the text is the library's own
        unsafe { pointers::copy(text.as_bytes(), &[0], buffer.cast(), capacity) }
    })
}

/// Goes on from a new socket, for a device that changed its network or woke up: the server follows, and nothing reliable is lost.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_rebind(client: DrumfireClient) -> DrumfireStatus {
    with(client, |held| Ok(held.client.rebind()?))
}

/// Closes the connection with the next flush or poll, with a code of the application's own and a line of up to 128 bytes for the
/// server's log; null is none. `Disconnected` comes last, here too. The handle stays until `drumfire_client_free`.
///
/// # Safety
///
/// `text` is null or ends with a NUL byte.
// SAFETY: nothing else has names that begin with `drumfire_`; what the caller promises stands above
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_close(
    client: DrumfireClient,
    code: u32,
    text: *const c_char,
) -> DrumfireStatus {
    with(client, |held| {
        // SAFETY: the caller's promise
        let text = unsafe { pointers::text("text", text, CLOSE_TEXT_MAX_BYTES) }?;
        Ok(held.client.close(code, text.unwrap_or_default())?)
    })
}

/// Frees the client, from any thread, and tells the server once when the connection was not closed. Its handle and the bytes of
/// its last event are worth nothing from now on. On another thread than the client's, for finalizers, a call that goes on
/// meanwhile ends well, and the client is gone when it has.
// SAFETY: nothing else has names that begin with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_free(client: DrumfireClient) -> DrumfireStatus {
    alone(|| table::remove(client).map(drop))
}
