//! The exported functions on clients. Each function checks its arguments and calls the client.
//!
//! `table` checks handles and threads, `pointers` checks pointers, and `options` checks numbers, all before the client
//! is called.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use drumfire::config::CLOSE_TEXT_MAX_BYTES;
use drumfire::{Bytes, ChannelId, Message, SendError};

use crate::client::BufferedClient;
use crate::connect::{self, DRUMFIRE_TEXT_MAX_BYTES, DrumfireConfig};
use crate::error::Failure;
use crate::event::DrumfireEvent;
use crate::guard::{guarded, with_client};
use crate::options::{DrumfireChannelOptions, DrumfireSendOptions, ReadOptions};
use crate::pointers::{self, output, required};
use crate::stats::{self, DrumfireState, DrumfireStats};
use crate::status::DrumfireStatus;
use crate::table::{self, DrumfireClient};

/// The maximum size of a message under any settings, in bytes.
const MESSAGE_LIMIT_BYTES: usize = 16 << 20;

/// Starts to connect and writes the handle of the new client. The result is an event: `Connected`, or `ConnectFailed`
/// after at most 5 seconds unless the client reconnects. The client belongs to the calling thread. Free it with
/// `drumfire_client_free`, also after the connection ended.
///
/// # Safety
///
/// Each text of `config` is null or ends with a NUL byte.
// SAFETY: no other symbol starts with `drumfire_`; the doc comment lists the duties of the caller
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_connect(
    config: Option<&DrumfireConfig>,
    client: Option<&mut MaybeUninit<DrumfireClient>>,
) -> DrumfireStatus {
    guarded(|| {
        let (config, client) = (required("config", config)?, output("client", client)?);
        // SAFETY: the caller guarantees it
        let text = |name: &str, pointer| unsafe { pointers::text(name, pointer, DRUMFIRE_TEXT_MAX_BYTES) };
        let reservation = table::reserve()?;
        let (inner, peer) = connect::connect(config, text)?;
        client.write(reservation.insert(BufferedClient::new(inner, peer)));
        Ok(())
    })
}

/// Does the I/O: receives datagrams and sends what is due. Waits up to `timeout_ms` milliseconds for an event; zero
/// does not wait. Then take the events with `drumfire_client_receive`. Events that were not taken come first after the
/// next poll. Call it once per frame, and at least ten times per second.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_poll(client: DrumfireClient, timeout_ms: u32) -> DrumfireStatus {
    with_client(client, |client| {
        client.poll(Duration::from_millis(timeout_ms.into()));
        Ok(())
    })
}

/// Takes the next event. Its kind is `DRUMFIRE_EVENT_KIND_NONE` if there is no event until the next poll. Its bytes are
/// borrowed: they are valid until the next `drumfire_client_receive`, `_receive_into`, `_poll`, or `_free` of this
/// client. It does no I/O.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_receive(
    client: DrumfireClient,
    event: Option<&mut MaybeUninit<DrumfireEvent>>,
) -> DrumfireStatus {
    with_client(client, |client| {
        output("event", event)?.write(client.receive());
        Ok(())
    })
}

/// Takes the next event and copies its bytes into a buffer of `capacity` bytes. If they do not fit, it returns
/// `DRUMFIRE_STATUS_BUFFER_TOO_SMALL` and writes their number to `bytes_count`; the next call returns the same event. A
/// null buffer with a capacity of 0 queries the size.
///
/// # Safety
///
/// `buffer` is null or points to `capacity` writable bytes.
// SAFETY: no other symbol starts with `drumfire_`; the doc comment lists the duties of the caller
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_receive_into(
    client: DrumfireClient,
    event: Option<&mut MaybeUninit<DrumfireEvent>>,
    buffer: *mut u8,
    capacity: usize,
) -> DrumfireStatus {
    with_client(client, |client| {
        let event = output("event", event)?;
        // SAFETY: the caller guarantees the buffer, which cannot overlap the library's own bytes
        let (mut taken, copied) =
            client.receive_into(|bytes| unsafe { pointers::copy(bytes, &[], buffer, capacity) });
        if copied.is_ok() && taken.bytes_count != 0 {
            taken.bytes = buffer;
        }
        event.write(taken);
        copied
    })
}

/// Queues a message for the server, with a copy of the bytes. The next flush or poll sends it. `receipt` may be null.
/// Otherwise it receives the number that identifies the message's outcome, or 0 if `options` requests no receipt.
///
/// # Safety
///
/// `bytes` is null or points to `bytes_count` readable bytes.
// SAFETY: no other symbol starts with `drumfire_`; the doc comment lists the duties of the caller
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_send(
    client: DrumfireClient,
    channel: u16,
    bytes: *const u8,
    bytes_count: usize,
    options: Option<&DrumfireSendOptions>,
    receipt: Option<&mut MaybeUninit<u64>>,
) -> DrumfireStatus {
    with_client(client, |client| {
        let ReadOptions { options, wants_receipt, is_flushed } = required("options", options)?.read()?;
        // SAFETY: the caller guarantees it
        let bytes = unsafe { pointers::bytes(bytes, bytes_count) }?;
        // The client checks the size too, but only after the bytes were copied.
        if bytes.len() > MESSAGE_LIMIT_BYTES {
            return Err(SendError::TooLarge { bytes: bytes.len(), limit_bytes: MESSAGE_LIMIT_BYTES }.into());
        }
        let message = Message::new(ChannelId(channel), Bytes::copy_from_slice(bytes), options);
        let id = if wants_receipt {
            Some(client.inner.send_with_receipt(client.peer, message)?)
        } else {
            client.inner.send(client.peer, message)?;
            None
        };
        if is_flushed {
            client.inner.flush();
        }
        if let Some(receipt) = receipt {
            receipt.write(id.map_or(0, |id| id.0.get()));
        }
        Ok(())
    })
}

/// Sends all messages that were queued since the last flush or poll. Call it at the end of a frame.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_flush(client: DrumfireClient) -> DrumfireStatus {
    with_client(client, |client| {
        client.inner.flush();
        Ok(())
    })
}

/// Sets the options of a channel from the next flush or poll on, for this connection and for reconnects.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_set_channel(
    client: DrumfireClient,
    channel: u16,
    options: Option<&DrumfireChannelOptions>,
) -> DrumfireStatus {
    with_client(client, |client| {
        let options = required("options", options)?.read()?;
        client.inner.set_channel_options(client.peer, ChannelId(channel), options);
        Ok(())
    })
}

/// Forgets the last message of a key on a channel in the mode `DRUMFIRE_MODE_RELIABLE_LATEST`. Call it when the thing
/// that the key names is gone.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_forget_key(
    client: DrumfireClient,
    channel: u16,
    key: u64,
) -> DrumfireStatus {
    with_client(client, |client| {
        client.inner.forget_key(client.peer, ChannelId(channel), key);
        Ok(())
    })
}

/// Writes the state of the client as of the last event that was taken.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_state(
    client: DrumfireClient,
    state: Option<&mut MaybeUninit<DrumfireState>>,
) -> DrumfireStatus {
    with_client(client, |client| {
        output("state", state)?.write(client.state);
        Ok(())
    })
}

/// Writes the counters of the client and the last measurement of its path. Requests a new measurement, which is
/// available after the events of the next poll were taken.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_stats(
    client: DrumfireClient,
    stats: Option<&mut MaybeUninit<DrumfireStats>>,
) -> DrumfireStatus {
    with_client(client, |client| {
        output("stats", stats)?.write(stats::to_c_stats(&client.inner.stats(), client.path_stats.as_deref()));
        client.inner.request_stats(client.peer);
        Ok(())
    })
}

/// Writes the time of the client's clock in nanoseconds since an unspecified start. The `clock_offset_ns` in
/// `DrumfireStats` is relative to this clock.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_time(
    client: DrumfireClient,
    nanoseconds: Option<&mut MaybeUninit<u64>>,
) -> DrumfireStatus {
    with_client(client, |client| {
        output("nanoseconds", nanoseconds)?.write(client.inner.now().as_nanos());
        Ok(())
    })
}

/// Writes the newest resume token of this player and a NUL byte into a buffer of `capacity` bytes. Use it as
/// `DrumfireConfig.token` to come back to this server, also after the connection is lost. `needed` may be null.
/// Otherwise it receives the size of the text in bytes, including the NUL byte. Returns
/// `DRUMFIRE_STATUS_NO_RESUME_TOKEN` if the server issued no token. Keep the token secret: it admits its holder as this
/// player, once, for ten minutes.
///
/// # Safety
///
/// `buffer` is null or points to `capacity` writable bytes.
// SAFETY: no other symbol starts with `drumfire_`; the doc comment lists the duties of the caller
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_resume_token(
    client: DrumfireClient,
    buffer: *mut c_char,
    capacity: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> DrumfireStatus {
    with_client(client, |client| {
        let token = client.inner.resume_token(client.peer);
        let token =
            token.ok_or_else(|| Failure::new(DrumfireStatus::NoResumeToken, "the server gave no token"))?;
        let text = token.to_text();
        if let Some(needed) = needed {
            needed.write(text.len() + 1);
        }
        // SAFETY: the caller guarantees the buffer, which cannot overlap the library's own text
        unsafe { pointers::copy(text.as_bytes(), &[0], buffer.cast(), capacity) }
    })
}

/// Continues on a new socket. Call it when the device changed its network or woke up. The connection migrates, and no
/// reliable message is lost.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_rebind(client: DrumfireClient) -> DrumfireStatus {
    with_client(client, |client| Ok(client.inner.rebind()?))
}

/// Closes the connection with the next flush or poll. `code` is a number of the application, and `text` is a line of up
/// to 128 bytes for the server's log, or null. `Disconnected` is the last event, also here. The handle stays valid
/// until `drumfire_client_free`.
///
/// # Safety
///
/// `text` is null or ends with a NUL byte.
// SAFETY: no other symbol starts with `drumfire_`; the doc comment lists the duties of the caller
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drumfire_client_close(
    client: DrumfireClient,
    code: u32,
    text: *const c_char,
) -> DrumfireStatus {
    with_client(client, |client| {
        // SAFETY: the caller guarantees it
        let text = unsafe { pointers::text("text", text, CLOSE_TEXT_MAX_BYTES) }?;
        if client.state == DrumfireState::Closed {
            return Err(Failure::new(DrumfireStatus::Closed, "the connection is over"));
        }
        client.inner.close(client.peer, code, text.unwrap_or_default());
        Ok(())
    })
}

/// Frees the client. If the connection is open, it is closed first, and the server is notified once. The handle and the
/// bytes of the last event become invalid. Any thread may call it, so that a finalizer can. If the client's own thread
/// is in a call, that call completes, and then the client is freed.
// SAFETY: no other symbol starts with `drumfire_`
#[unsafe(no_mangle)]
pub extern "C" fn drumfire_client_free(client: DrumfireClient) -> DrumfireStatus {
    guarded(|| table::remove(client).map(drop))
}
