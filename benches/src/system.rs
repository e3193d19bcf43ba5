//! What the system says of a process and of its sockets, beside the clocks that `drumfire_tools::host` reads. Where it says
//! nothing, as on every system but Linux, the answer is `None` and never zero.

use std::time::Duration;

use drumfire_tools::clock;
use drumfire_tools::host::{self, CpuTicks, ProcessClock, ThreadSample};
use drumfire_tools::report::CpuTime;

use crate::setup;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All that is resident.
    pub resident_bytes: u64,
    /// Of it what no file stands behind: heap and stacks.
    pub anonymous_bytes: u64,
}

/// The memory of this process now.
#[must_use]
pub fn memory(process: u32) -> Option<Memory> {
    memory_of(&std::fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn memory_of(status: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
    };
    Some(Memory { resident_bytes: bytes("VmRSS:")?, anonymous_bytes: bytes("RssAnon:")? })
}

/// Datagrams that the kernel dropped for want of room, of all sockets here: look at it at both ends of what is of interest.
#[derive(Clone, Copy, Debug)]
pub struct DropWatch(Option<u64>);

impl DropWatch {
    /// Begins to count.
    #[must_use]
    pub fn begin() -> Self {
        Self(kernel_drops())
    }

    /// How many were dropped since; none where the system does not tell.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.zip(kernel_drops()).map_or(0, |(then, now)| now.saturating_sub(then))
    }
}

/// Since the system started.
fn kernel_drops() -> Option<u64> {
    drops_of(&std::fs::read_to_string("/proc/net/snmp").ok()?)
}

fn drops_of(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|name| name == "RcvbufErrors")?;
    values.split(' ').nth(place)?.parse().ok()
}

/// The load of the machine as the system says it, over one, five and fifteen minutes.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split(' ').take(3).collect();
    if averages.len() == 3 { averages.join(" ") } else { "unknown".to_owned() }
}

/// What a process used over a window: look at it at both ends.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    process: u32,
    at: u64,
    then: Option<ThreadSample>,
}

/// CPU time of a process over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// How long the window was.
    pub window: Duration,
    /// What was used, and how long its threads waited for a core.
    pub cpu: ThreadSample,
}

impl Watch {
    /// Begins a window.
    #[must_use]
    pub fn begin(process: u32) -> Self {
        Self { process, at: clock::host_ns(), then: ProcessClock::sample(process) }
    }

    /// What was used since; nothing when the process is gone.
    #[must_use]
    pub fn used(&self) -> Option<Used> {
        let window = Duration::from_nanos(clock::host_ns().saturating_sub(self.at));
        Some(Used { window, cpu: ProcessClock::sample(self.process)?.since(&self.then?) })
    }
}

impl Used {
    /// CPU seconds.
    #[must_use]
    pub fn cpu_s(&self) -> f64 {
        self.cpu.run_ns as f64 / 1e9
    }

    /// The CPU time of a window of this length, of which the two looks were a little late: as much of it as is due.
    #[must_use]
    pub fn cpu_over(&self, window: Duration) -> CpuTime {
        let scale = window.as_secs_f64() / self.window.as_secs_f64();
        let CpuTime { user_s, sys_s } = self.cpu.cpu_time();
        CpuTime { user_s: user_s * scale, sys_s: sys_s * scale }
    }

    /// Share of the window that its threads waited for a core.
    #[must_use]
    pub fn run_delay_share(&self) -> Option<f64> {
        self.cpu.run_delay_share(self.window)
    }

    /// Share of one core.
    #[must_use]
    pub fn core_share(&self) -> f64 {
        self.cpu_s() / self.window.as_secs_f64()
    }
}

/// What other guests of the host took of the machine over a window: look at it at both ends.
#[derive(Clone, Copy, Debug)]
pub struct StealWatch(Option<CpuTicks>);

impl StealWatch {
    /// Begins a window.
    #[must_use]
    pub fn begin() -> Self {
        Self(host::cpu_ticks())
    }

    /// The share since then, 0 to 1; nothing where the system does not tell or no tick has passed.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        host::cpu_ticks()?.steal_share_since(&self.0?)
    }
}

/// What stands above every bench: the machine, what the load goes over, the build, and how busy the machine is.
pub fn print_machine() {
    println!("machine   {}", host::machine());
    println!("network   {}", setup::network());
    println!("build     {}", setup::build());
    println!("idle      {}", host::idle().unwrap_or_else(|| "unknown".to_owned()));
    println!("load      {}", load_average());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_drops_are_read_by_their_names() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t     512 kB\n";
        let memory = Memory { resident_bytes: 2_048 * 1_024, anonymous_bytes: 512 * 1_024 };
        assert_eq!(memory_of(status), Some(memory));
        assert_eq!(memory_of("VmRSS:\t1 kB\n"), None);
        let snmp = "Tcp: a b\nTcp: 1 2\nUdp: InDatagrams RcvbufErrors Other\nUdp: 5 7 9\n";
        assert_eq!((drops_of(snmp), drops_of("Udp: InDatagrams\nUdp: 5\n")), (Some(7), None));
    }

    #[test]
    fn the_cpu_time_of_a_window_is_that_of_its_length() {
        let cpu =
            ThreadSample { run_ns: 660_000_000, run_delay_ns: Some(11_000_000), user_s: 0.44, sys_s: 0.22 };
        let used = Used { window: Duration::from_millis(1_100), cpu };
        let of_window = used.cpu_over(Duration::from_secs(1));
        assert!((of_window.user_s - 0.4).abs() < 1e-9 && (of_window.sys_s - 0.2).abs() < 1e-9);
        assert!((used.core_share() - 0.6).abs() < 1e-9);
        assert!(used.run_delay_share().is_some_and(|share| (share - 0.01).abs() < 1e-9));
    }

    #[test]
    fn this_process_has_memory_and_a_clock_where_there_is_proc() {
        if !std::path::Path::new("/proc/self/status").exists() {
            return;
        }
        let memory = memory(std::process::id()).expect("it is there");
        assert!(memory.anonymous_bytes > 0 && memory.resident_bytes >= memory.anonymous_bytes);
        let used = Watch::begin(std::process::id()).used().expect("it is there");
        assert!(used.cpu_s() >= 0.0);
        assert!(Watch::begin(u32::MAX).used().is_none());
    }
}
