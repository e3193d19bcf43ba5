//! Linux: TUN devices, and seccomp filters that answer a call with an error number.
//!
//! A filter holds for the thread that sets it, and for good.

use std::fs::DirEntry;
use std::io::{self, ErrorKind};

use seccompiler::{apply_filter, compile_from_json};
use serde_json::{Value, json};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::UdpOption;
use crate::stop::{Stop, Tried};

/// A network device whose packets come here, and that takes packets from here.
pub(crate) struct Device(SyncDevice);

impl Device {
    /// A new one with this name, in the network namespace of this program.
    ///
    /// # Errors
    /// [`Stop::Needs`] where the system has none or the privilege is missing.
    pub(crate) fn open(name: &str, mtu: u16) -> Result<Self, Stop> {
        let device =
            DeviceBuilder::new().name(name).mtu(mtu).build_sync().map_err(|why| match why.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                    Stop::Needs(format!("TUN devices, and the privilege to make them: {why}"))
                }
                _ => Stop::failed("a TUN device", why),
            })?;
        device.set_nonblocking(true).tried("a TUN device that does not wait")?;
        Ok(Self(device))
    }

    /// Takes the next packet that the system sends by this device; `None` when there is none now.
    pub(crate) fn take<'a>(&self, room: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match self.0.recv(room) {
            Ok(length) => Ok(room.get(..length)),
            Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Gives the system a packet as if it came by this device; answers whether it took it.
    pub(crate) fn give(&self, packet: &[u8]) -> bool {
        self.0.send(packet).is_ok()
    }
}

/// The sockets that this process has open, by their descriptors.
///
/// # Errors
/// When the system does not tell.
pub(crate) fn open_sockets() -> Result<Vec<u32>, Stop> {
    let files = std::fs::read_dir("/proc/self/fd").tried("the open files")?.flatten();
    let is_socket = |file: &DirEntry| {
        std::fs::read_link(file.path())
            .is_ok_and(|leads_to| leads_to.to_string_lossy().starts_with("socket:"))
    };
    Ok(files.filter(is_socket).filter_map(|file| file.file_name().to_str()?.parse().ok()).collect())
}

/// From now on these calls of this thread, by their names, are answered with this error number and do nothing; only those with
/// one of these descriptors, where there are any.
///
/// # Errors
/// [`Stop::Needs`] where the system has no such filter.
pub(crate) fn refuse(calls: &[&str], errno: i32, descriptors: Option<&[u32]>) -> Result<(), Stop> {
    let rules = calls.iter().flat_map(|call| match descriptors {
        None => vec![json!({ "syscall": call })],
        Some(some) => some.iter().map(|one| json!({ "syscall": call, "args": [is(0, *one)] })).collect(),
    });
    filter(&rules.collect::<Vec<_>>(), errno)
}

/// From now on this thread, and those that it starts, can neither ask for this option of UDP sockets nor set it: the system seems
/// not to know it.
///
/// # Errors
/// [`Stop::Needs`] where the system has no such filter.
pub(crate) fn lack_option(option: UdpOption) -> Result<(), Stop> {
    const LEVEL: u32 = 17;
    const UNKNOWN_OPTION: i32 = 92;
    let number = match option {
        UdpOption::Segment => 103,
        UdpOption::Gro => 104,
    };
    let rules = ["getsockopt", "setsockopt"]
        .map(|call| json!({ "syscall": call, "args": [is(1, LEVEL), is(2, number)] }));
    filter(&rules, UNKNOWN_OPTION)
}

/// An argument of a call that has this value.
fn is(argument: u8, value: u32) -> Value {
    json!({ "index": argument, "type": "dword", "op": "eq", "val": value })
}

fn filter(rules: &[Value], errno: i32) -> Result<(), Stop> {
    let filter = json!({ "thread": {
        "mismatch_action": "allow", "match_action": { "errno": errno }, "filter": rules,
    } });
    let architecture = std::env::consts::ARCH.try_into().tried("this processor")?;
    let programs =
        compile_from_json(filter.to_string().as_bytes(), architecture).tried("a filter of calls")?;
    let program = programs.get("thread").tried("a filter of calls")?;
    apply_filter(program).map_err(|why| Stop::Needs(format!("seccomp filters: {why}")))
}
