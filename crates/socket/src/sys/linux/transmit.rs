//! `sendmmsg`, with one datagram or one train per message.

use std::os::fd::AsRawFd;

use super::address::Name;
use super::control::ControlSpace;
use super::local::LocalAddresses;
use crate::send_batch::first_train;
use crate::{Fault, Outgoing};

/// Headers and addresses for one send call.
pub(crate) struct SendHeaders {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[ControlSpace]>,
    /// Datagrams in each message.
    counts: Box<[usize]>,
}

// SAFETY: the raw pointers inside are written anew before each call and read by nobody between calls, so they
// may lie around on any thread.
unsafe impl Send for SendHeaders {}

impl SendHeaders {
    pub(crate) fn new(messages: usize) -> Self {
        // SAFETY: msghdr and iovec are integers and pointers, for which all zeroes is a value.
        let (message, vector) =
            unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::iovec>()) };
        Self {
            messages: vec![message; messages].into_boxed_slice(),
            vectors: vec![vector; messages].into_boxed_slice(),
            names: vec![Name::EMPTY; messages].into_boxed_slice(),
            controls: vec![ControlSpace::EMPTY; messages].into_boxed_slice(),
            counts: vec![0; messages].into_boxed_slice(),
        }
    }
}

/// Sends as many messages as headers exist for, each one datagram or, when `is_segmented`, one train; answers
/// how many datagrams the kernel took.
pub(crate) fn send_batch(
    udp: &mio::net::UdpSocket,
    outgoing: &mut Outgoing<'_>,
    is_segmented: bool,
    locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    let SendHeaders { messages, vectors, names, controls, counts } = &mut *outgoing.headers;
    let mut rest = outgoing.entries;
    let mut offered: libc::c_uint = 0;
    for ((((message, vector), name), control), count) in messages
        .iter_mut()
        .zip(vectors.iter_mut())
        .zip(names.iter_mut())
        .zip(controls.iter_mut())
        .zip(counts.iter_mut())
    {
        let Some(first) = rest.first() else { break };
        *count = if is_segmented { first_train(rest) } else { 1 };
        let (train, after) = rest.split_at(*count);
        rest = after;
        let bytes = train.iter().map(|entry| entry.bytes).sum::<usize>();
        let payload = &outgoing.arena[first.at..first.at + bytes];
        *vector = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        let header = &mut message.msg_hdr;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_namelen = first.to.map_or(0, |to| name.set(to));
        header.msg_name =
            if first.to.is_some() { std::ptr::from_mut(name).cast() } else { std::ptr::null_mut() };
        header.msg_control = std::ptr::null_mut();
        header.msg_controllen = 0;
        let segment_bytes = if *count > 1 { u16::try_from(first.bytes).ok() } else { None };
        let local = locals.as_mut().and_then(|locals| locals.address_of(first.local));
        let control_bytes = control.write(segment_bytes, local);
        if control_bytes > 0 {
            header.msg_control = std::ptr::from_mut(control).cast();
            header.msg_controllen = control_bytes as _;
        }
        offered += 1;
    }
    // SAFETY: the first `offered` headers point at payload, names and control messages that this function's
    // borrows keep alive for the call, with the lengths they have; the kernel only reads the payload.
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmmsg(udp.as_raw_fd(), messages.as_mut_ptr(), offered, flags as _)
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(counts.iter().take(sent).sum()),
        Err(_) => Err(super::fault(&std::io::Error::last_os_error())),
    }
}
