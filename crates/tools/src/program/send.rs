//! `sender`: one run, its table and its JSON.

use std::ffi::OsString;

use super::files::{Json, print_line};
use super::{Failure, command, is_interrupted, watch_for_interrupt};
use crate::cli::{SenderArgs, UsageError};
use crate::host;
use crate::sender::{SendError, SendPlan};
use crate::table;

/// Whether the table is printed. A receiver that started this sender prints its own table on the same terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TableOutput {
    Printed,
    Hidden,
}

pub(super) fn run(args: Vec<OsString>, table_output: TableOutput) -> Result<(), Failure> {
    let typed = command("sender", &args);
    let args = SenderArgs::parse(args)?;
    let json = Json::prepare(args.json.as_ref())?;
    watch_for_interrupt();
    let plan = plan(&args);
    let mut report = crate::sender::run(&plan, &is_interrupted).map_err(|error| failure(&plan, error))?;
    (report.command, report.flags) = (typed, args.flags());
    if table_output == TableOutput::Printed {
        print_line(&json, &table::render(&report).map_err(|error| Failure::Run(error.to_string()))?);
    }
    json.write(&report.to_json().map_err(|error| Failure::Run(error.to_string()))?)
}

fn plan(args: &SenderArgs) -> SendPlan {
    let traffic = &args.traffic;
    SendPlan {
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

/// The cores that this process may use, rotated so that the `first`-th comes first.
fn cores_from(first: usize) -> Vec<usize> {
    let mut cores = host::allowed_cores().unwrap_or_default();
    let count = cores.len().max(1);
    cores.rotate_left(first % count);
    cores
}

fn failure(plan: &SendPlan, error: SendError) -> Failure {
    match error {
        SendError::Sockets(error) => UsageError::for_sockets(plan.flows, &error).into(),
        SendError::Size(..) => Failure::Setting(UsageError::from(error.to_string())),
        other => Failure::Run(other.to_string()),
    }
}
