//! TUN devices, through which this program forwards packets, and seccomp filters, which make system calls fail. A
//! filter applies to the thread that installs it, and stays until the thread ends.

use std::collections::BTreeMap;
use std::fs::{DirEntry, read_dir, read_link};
use std::io::{self, ErrorKind};

use seccompiler::{apply_filter, compile_from_json};
use serde_json::{Value, json};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::error::{Error, ErrorContext};

/// A TUN device. This program receives and sends its packets.
pub(crate) struct TunDevice(SyncDevice);

impl TunDevice {
    /// Makes a device in the program's network namespace.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the system has no such devices or the privilege is missing.
    pub(crate) fn open(name: &str, mtu: u16) -> Result<Self, Error> {
        let device =
            DeviceBuilder::new().name(name).mtu(mtu).build_sync().map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                    Error::Unsupported(format!("TUN devices, and the privilege to make them: {error}"))
                }
                _ => Error::failed("a TUN device", error),
            })?;
        device.set_nonblocking(true).context("a nonblocking TUN device")?;
        Ok(Self(device))
    }

    /// Returns the next packet that the system sends through the device, or `None` if there is none now.
    pub(crate) fn receive<'a>(&self, memory: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.0.recv(memory) {
            Ok(length) => Ok(memory.get(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Passes a packet to the system as if the device had received it. Returns whether the system accepted it.
    pub(crate) fn send(&self, packet: &[u8]) -> bool {
        self.0.send(packet).is_ok()
    }
}

/// Returns the target of each open descriptor of a process. A descriptor that was closed in between has no target.
pub(crate) fn open_files(process: u32) -> Result<BTreeMap<u32, String>, Error> {
    let files = read_dir(format!("/proc/{process}/fd")).context("the open files")?.flatten();
    let target = |file: DirEntry| {
        let target = read_link(file.path()).ok()?;
        Some((file.file_name().to_str()?.parse().ok()?, target.to_string_lossy().into_owned()))
    };
    Ok(files.filter_map(target).collect())
}

/// Returns the open descriptors of a process that are sockets, and the name of each socket.
pub(crate) fn open_sockets(process: u32) -> Result<BTreeMap<u32, String>, Error> {
    let mut files = open_files(process)?;
    files.retain(|_, target| target.starts_with("socket:"));
    Ok(files)
}

/// Makes these system calls of the thread fail with an error number, for the given descriptors or for all.
///
/// # Errors
/// [`Error::Unsupported`] if the system has no such filters.
pub(crate) fn fail_calls(calls: &[&str], errno: i32, descriptors: Option<&[u32]>) -> Result<(), Error> {
    let rules = calls.iter().flat_map(|call| match descriptors {
        None => vec![json!({ "syscall": call })],
        Some(some) => some
            .iter()
            .map(|descriptor| json!({ "syscall": call, "args": [argument(0, *descriptor)] }))
            .collect(),
    });
    install(&rules.collect::<Vec<_>>(), errno)
}

/// Hides from this thread, and from those that it starts, that the kernel segments and coalesces trains of datagrams.
///
/// # Errors
/// [`Error::Unsupported`] if the system has no such filters.
pub(crate) fn hide_trains() -> Result<(), Error> {
    const SOL_UDP: u32 = 17;
    const UDP_SEGMENT: u32 = 103;
    const UDP_GRO: u32 = 104;
    const ENOPROTOOPT: i32 = 92;
    let rules = ["getsockopt", "setsockopt"].iter().flat_map(|call| {
        [UDP_SEGMENT, UDP_GRO]
            .map(|option| json!({ "syscall": call, "args": [argument(1, SOL_UDP), argument(2, option)] }))
    });
    install(&rules.collect::<Vec<_>>(), ENOPROTOOPT)
}

/// Returns the condition that an argument of a call has this value.
fn argument(index: u8, value: u32) -> Value {
    json!({ "index": index, "type": "dword", "op": "eq", "val": value })
}

fn install(rules: &[Value], errno: i32) -> Result<(), Error> {
    const WHAT: &str = "a filter of system calls";
    let filter = json!({ "thread": {
        "mismatch_action": "allow", "match_action": { "errno": errno }, "filter": rules,
    } });
    let architecture = std::env::consts::ARCH.try_into().context("this processor")?;
    let programs = compile_from_json(filter.to_string().as_bytes(), architecture).context(WHAT)?;
    let program = programs.get("thread").context(WHAT)?;
    apply_filter(program).map_err(|error| Error::Unsupported(format!("seccomp filters: {error}")))
}
