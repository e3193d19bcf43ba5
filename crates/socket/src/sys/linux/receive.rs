//! `recvmmsg`: headers made once, pointed at the caller's slots before each call, and only what the kernel
//! changed is set back.

use std::os::fd::AsRawFd;

use super::address::Name;
use super::control::ControlSpace;
use super::local::LocalAddresses;
use crate::batch::RecvParts;
use crate::{Fault, LocalAddress};

/// Headers, addresses and control space for one batch.
pub(crate) struct RecvHeaders {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[ControlSpace]>,
}

// SAFETY: the raw pointers inside are written anew before each call and read by nobody between calls, so they
// may lie around on any thread.
unsafe impl Send for RecvHeaders {}

impl RecvHeaders {
    pub(crate) fn new(slots: usize) -> Self {
        // SAFETY: msghdr and iovec are integers and pointers, for which all zeroes is a value.
        let (message, vector) =
            unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::iovec>()) };
        Self {
            messages: vec![message; slots].into_boxed_slice(),
            vectors: vec![vector; slots].into_boxed_slice(),
            names: vec![Name::EMPTY; slots].into_boxed_slice(),
            controls: vec![ControlSpace::EMPTY; slots].into_boxed_slice(),
        }
    }
}

pub(crate) fn recv_batch(
    udp: &mio::net::UdpSocket,
    parts: &mut RecvParts<'_>,
    locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    let RecvHeaders { messages, vectors, names, controls } = &mut *parts.headers;
    let mut offered: libc::c_uint = 0;
    for ((((message, vector), name), control), slot) in messages
        .iter_mut()
        .zip(vectors.iter_mut())
        .zip(names.iter_mut())
        .zip(controls.iter_mut())
        .zip(parts.memory.chunks_mut(parts.stride))
        .take(parts.limit)
    {
        *vector =
            libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: parts.slot_bytes.min(slot.len()) };
        let header = &mut message.msg_hdr;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_name = std::ptr::from_mut(name).cast();
        header.msg_namelen = Name::BYTES;
        header.msg_control = std::ptr::from_mut(control).cast();
        header.msg_controllen = size_of::<ControlSpace>() as _;
        offered += 1;
    }
    // SAFETY: the first `offered` headers point at memory, names and control space that this function's borrows
    // keep alive and unaliased for the call, with the lengths they have; offered is at most messages.len().
    let received = unsafe {
        libc::recvmmsg(
            udp.as_raw_fd(),
            messages.as_mut_ptr(),
            offered,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let Ok(received) = usize::try_from(received) else {
        return Err(super::fault(&std::io::Error::last_os_error()));
    };
    let filled = messages.iter().zip(names.iter()).zip(controls.iter()).zip(parts.slots.iter_mut());
    for (((message, name), control), slot) in filled.take(received) {
        let flags = message.msg_hdr.msg_flags;
        slot.from = name.address();
        slot.bytes = (message.msg_len as usize).min(parts.slot_bytes);
        slot.is_truncated = flags & libc::MSG_TRUNC != 0;
        slot.is_control_truncated = flags & libc::MSG_CTRUNC != 0;
        let facts = control.read(message.msg_hdr.msg_controllen as _);
        slot.segment_bytes = facts.segment_bytes;
        slot.local = match (&mut *locals, facts.local) {
            (Some(locals), Some(address)) => locals.number_of(address),
            _ => LocalAddress::ANY,
        };
    }
    Ok(received)
}
