//! `sender`: one run, its table and its JSON.

use std::ffi::OsString;

use super::files::{Json, say};
use super::{Failure, command, is_interrupted, watch_for_interrupt};
use crate::cli::{SenderArgs, UsageError};
use crate::host;
use crate::sender::{Plan, SendError};
use crate::table;

/// Whether the table is printed: beside a receiver on the same terminal its table says it all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Voice {
    Loud,
    Silent,
}

pub(super) fn run(args: Vec<OsString>, voice: Voice) -> Result<(), Failure> {
    let typed = command("sender", &args);
    let args = SenderArgs::parse(args)?;
    let json = Json::prepare(args.json.as_ref())?;
    watch_for_interrupt();
    let plan = plan(&args);
    let sent = crate::sender::run(&plan, &is_interrupted).map_err(|error| failure(&plan, error))?;
    let report = sent.report(&typed, args.flags());
    if voice == Voice::Loud {
        say(&json, &table::render(&report).map_err(|error| Failure::Run(error.to_string()))?);
    }
    json.write(&report.to_json().map_err(|error| Failure::Run(error.to_string()))?)
}

fn plan(args: &SenderArgs) -> Plan {
    let traffic = &args.traffic;
    Plan {
        to: args.to.addresses.clone(),
        threads: traffic.threads,
        flows: traffic.flows,
        size: traffic.size,
        rate: traffic.rate,
        send: traffic.send,
        secs: traffic.secs,
        cores: traffic.pin.map_or_else(Vec::new, |first| cores_from(first as usize)),
    }
}

/// The cores this process may use, starting from the `first`-th and going round.
fn cores_from(first: usize) -> Vec<usize> {
    let mut cores = host::allowed_cores().unwrap_or_default();
    let count = cores.len().max(1);
    cores.rotate_left(first % count);
    cores
}

fn failure(plan: &Plan, error: SendError) -> Failure {
    match error {
        SendError::Sockets(error) => UsageError::for_sockets(plan.flows, &error).into(),
        SendError::Size(..) => Failure::Setting(error.to_string()),
        other => Failure::Run(other.to_string()),
    }
}
