//! The processes of the system, and seccomp filters, which make system calls fail. A filter applies to the thread that installs it, and
//! stays until the thread ends.

use std::collections::BTreeMap;

use procfs::process::{FDInfo, FDTarget, Process};
use seccompiler::{apply_filter, compile_from_json};
use serde_json::{Value, json};

use crate::error::{Error, ErrorContext};

/// Returns the system's view of a process.
pub(crate) fn process(id: u32) -> Result<Process, Error> {
    Process::new(id.try_into().context("a process id")?).context("a process")
}

/// Returns the open descriptors of a process, except for those that were closed in between.
pub(crate) fn open_files(id: u32) -> Result<impl Iterator<Item = FDInfo>, Error> {
    Ok(process(id)?.fd().context("the open files")?.flatten())
}

/// Returns the open descriptors of a process that are sockets, and the inode of each socket.
pub(crate) fn open_sockets(id: u32) -> Result<BTreeMap<u32, u64>, Error> {
    let socket = |file: FDInfo| match file.target {
        FDTarget::Socket(inode) => Some((file.fd.try_into().ok()?, inode)),
        _ => None,
    };
    Ok(open_files(id)?.filter_map(socket).collect())
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
