//! `sendmmsg`, with one datagram or one train per message.

use std::os::fd::AsRawFd;

use super::address::Name;
use crate::send_batch::first_train;
use crate::{Fault, Outgoing};

/// The control message that asks for segmentation (`UDP_SEGMENT`, a u16), laid out as `CMSG_FIRSTHDR` expects.
#[derive(Clone, Copy)]
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    segment_bytes: u16,
    padding: [u16; 3],
}

/// Headers and addresses for one send call.
pub(crate) struct SendHeaders {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
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
        let header = libc::cmsghdr {
            cmsg_len: (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _,
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        Self {
            messages: vec![message; messages].into_boxed_slice(),
            vectors: vec![vector; messages].into_boxed_slice(),
            names: vec![Name::EMPTY; messages].into_boxed_slice(),
            controls: vec![Control { header, segment_bytes: 0, padding: [0; 3] }; messages]
                .into_boxed_slice(),
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
        if let (true, Ok(segment_bytes)) = (*count > 1, u16::try_from(first.bytes)) {
            control.segment_bytes = segment_bytes;
            header.msg_control = std::ptr::from_mut(control).cast();
            header.msg_controllen = size_of::<Control>() as _;
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
