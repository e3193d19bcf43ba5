//! The counts of both ends over time, and the status line in the journal's format.

use drumfire_benches::{Child, Counts, count};
use drumfire_tools::clock;
use drumfire_tools::host::{ProcessClock, ThreadSample};

/// Bytes of what the status line calls Mb, as the journal did.
const MEGABYTE: f64 = 1e6;

/// The counts and the CPU time of both ends at one time, since their beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    pub(crate) server: Counts,
    pub(crate) clients: Counts,
    pub(crate) server_cpu: ThreadSample,
    pub(crate) clients_cpu: ThreadSample,
}

impl Sample {
    pub(crate) fn now(server: &Child, served: Counts, clients: Counts) -> Result<Self, String> {
        let cpu = |process| ProcessClock::sample(process).ok_or("the CPU time of a process cannot be read");
        let [server_cpu, clients_cpu] = [cpu(server.id())?, cpu(std::process::id())?];
        Ok(Self { at_ns: clock::host_ns(), server: served, clients, server_cpu, clients_cpu })
    }

    pub(crate) fn of_server(&self, name: &str) -> u64 {
        count(&self.server, name)
    }

    pub(crate) fn of_clients(&self, name: &str) -> u64 {
        count(&self.clients, name)
    }

    pub(crate) fn seconds_since(&self, earlier: &Self) -> f64 {
        (self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9).max(1e-9)
    }

    /// Messages that the server counted since an earlier sample.
    pub(crate) fn served_since(&self, earlier: &Self, name: &str) -> f64 {
        self.of_server(name).saturating_sub(earlier.of_server(name)) as f64
    }

    /// Messages that the clients counted since an earlier sample.
    pub(crate) fn counted_since(&self, earlier: &Self, name: &str) -> f64 {
        self.of_clients(name).saturating_sub(earlier.of_clients(name)) as f64
    }

    /// The CPU time of the server and of the clients since an earlier sample, in cores.
    pub(crate) fn cores_since(&self, earlier: &Self) -> [f64; 2] {
        let seconds = self.seconds_since(earlier);
        [self.server_cpu.since(&earlier.server_cpu), self.clients_cpu.since(&earlier.clients_cpu)]
            .map(|cpu| cpu.run_ns as f64 / 1e9 / seconds)
    }

    /// Deliveries that will never come, as far as is known at this time. The server did not make them, or they are missing between two
    /// messages of a speaker. Only the books have those that are lost at the very end.
    pub(crate) fn dropped(&self) -> u64 {
        let not_broadcast = self.of_server("not broadcast") * self.of_server("members");
        let by_server = self.of_server("missed") + self.of_server("messages given up") + not_broadcast;
        by_server.max(self.of_clients("gaps").saturating_sub(self.of_clients("behind")))
    }

    /// The line for the time from the sample before to this one.
    ///
    /// The journal's fields come first: clients, total and rate of bytes, messages and broadcasts per second, total and rate of drops.
    /// The bench adds the total and the rate of offered messages, skipped ones, the longest queue, and the CPU of both processes.
    pub(crate) fn line(&self, before: &Self) -> String {
        let seconds = self.seconds_since(before);
        let rate = |name: &str| self.counted_since(before, name) / seconds;
        let dropped = self.dropped().saturating_sub(before.dropped()) as f64 / seconds;
        let [server, clients] = self.cores_since(before).map(|cores| cores * 100.0);
        format!(
            "c[{:4}] s\u{3a3}[{:8.2}Mb] ss[{:5.2}Mb] ms[{:7.0}] bs[{:7.2}] d\u{3a3}[{}] ds[{dropped:.2}] | \
             o\u{3a3}[{}] os[{:.2}] skip\u{3a3}[{}] q[{}] cpu[{server:.0}% {clients:.0}%]",
            self.of_server("members"),
            self.of_clients("heard bytes") as f64 / MEGABYTE,
            rate("heard bytes") / MEGABYTE,
            rate("heard"),
            self.served_since(before, "broadcasts") / seconds,
            self.dropped(),
            self.of_clients("offered"),
            rate("offered"),
            self.of_clients("skipped") + self.of_clients("refused"),
            self.of_server("waiting most").max(self.of_server("gathered most")),
        )
    }
}
