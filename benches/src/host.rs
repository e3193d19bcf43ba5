//! The machine of a bench: its cores, its settings, and the usage of its processes over a window.
//!
//! Where the system does not report a value, as outside Linux, the value is `None` and never zero.

use std::fmt;
use std::fs;
use std::time::Duration;

use drumfire_tools::clock;
use drumfire_tools::host::{self, CpuTicks, ProcessClock, ThreadSample};
use drumfire_tools::report::{Accounting, CpuTime, Latency, Report, ThreadReport};

/// The cores of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The core of the server.
    pub server: usize,
    /// The core of the load.
    pub load: usize,
    /// The core of a process between the two: a third core, or else that of the load.
    pub between: usize,
}

impl Cores {
    /// The first cores that this process may use.
    pub fn of_this_process() -> Result<Self, String> {
        Self::among(&host::allowed_cores().unwrap_or_default())
    }

    fn among(cores: &[usize]) -> Result<Self, String> {
        match *cores {
            [server, load, ref others @ ..] => {
                let between = others.first().copied().unwrap_or(load);
                Ok(Self { server, load, between })
            }
            _ => Err("this bench needs two cores that threads can be pinned to".to_owned()),
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server to core {}, load to core {}", self.server, self.load)
    }
}

/// Returns the resident memory of a process now, in bytes.
pub fn resident_bytes(process: u32) -> Option<u64> {
    resident_of(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Counts the datagrams that the kernel drops at full receive buffers, over all sockets of the host.
#[derive(Clone, Copy, Debug)]
pub struct DropWatch(Option<u64>);

impl DropWatch {
    /// Begins to count.
    pub fn begin() -> Self {
        Self(kernel_drops())
    }

    /// Returns the drops since the beginning, or 0 where the system does not report them.
    pub fn count(&self) -> u64 {
        self.0.zip(kernel_drops()).map_or(0, |(then, now)| now.saturating_sub(then))
    }
}

fn kernel_drops() -> Option<u64> {
    drops_of(&fs::read_to_string("/proc/net/snmp").ok()?)
}

fn drops_of(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|name| name == "RcvbufErrors")?;
    values.split(' ').nth(place)?.parse().ok()
}

/// Measures the CPU time of a server, the CPU time of its load, and the steal of the machine over one window.
#[derive(Clone, Copy, Debug)]
pub struct UsageWatch {
    processes: [u32; 2],
    at: u64,
    then: [Option<ThreadSample>; 2],
    ticks: Option<CpuTicks>,
}

/// CPU time of a process over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// The length of the window.
    pub window: Duration,
    /// The CPU time, and the time for which its threads waited for a core.
    pub cpu: ThreadSample,
}

/// The usage of a server and of its load over one window.
#[derive(Clone, Copy, Debug)]
pub struct WindowUsage {
    /// The usage of the server's process.
    pub server: Usage,
    /// The usage of the process of the load.
    pub load: Usage,
    /// The share of the machine's time that other guests of its host took, 0 to 1.
    pub steal_share: Option<f64>,
}

impl UsageWatch {
    /// Begins a window.
    pub fn begin(server: u32, load: u32) -> Self {
        let processes = [server, load];
        let (at, ticks) = (clock::host_ns(), host::cpu_ticks());
        Self { processes, at, then: processes.map(ProcessClock::sample), ticks }
    }

    /// Returns the usage since the beginning. Fails when a process has ended.
    pub fn used(&self) -> Result<WindowUsage, String> {
        let window = Duration::from_nanos(clock::host_ns().saturating_sub(self.at));
        let usage = |place: usize| {
            let samples = ProcessClock::sample(self.processes[place]).zip(self.then[place]);
            let (now, then) = samples.ok_or("the CPU time of a process cannot be read")?;
            Ok::<_, String>(Usage { window, cpu: now.since(&then) })
        };
        let ticks = host::cpu_ticks().zip(self.ticks);
        let steal_share = ticks.and_then(|(now, then)| now.steal_share_since(&then));
        Ok(WindowUsage { server: usage(0)?, load: usage(1)?, steal_share })
    }
}

impl Usage {
    /// The CPU time in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.cpu.run_ns as f64 / 1e9
    }

    /// Returns the CPU time scaled to a window of this length. Both samples are taken a little late.
    pub fn cpu_over(&self, window: Duration) -> CpuTime {
        let scale = window.as_secs_f64() / self.window.as_secs_f64();
        let CpuTime { user_s, sys_s } = self.cpu.cpu_time();
        CpuTime { user_s: user_s * scale, sys_s: sys_s * scale }
    }

    /// The share of the window for which its threads waited for a core.
    pub fn run_delay_share(&self) -> Option<f64> {
        self.cpu.run_delay_share(self.window)
    }

    /// The share of one core.
    pub fn core_share(&self) -> f64 {
        self.cpu_s() / self.window.as_secs_f64()
    }
}

/// Makes the report of a server whose process used this CPU time.
pub fn report_of(cpu: CpuTime, window: Duration, books: Accounting, latency: Option<Latency>) -> Report {
    let thread = ThreadReport { received: books.received, ..ThreadReport::default() };
    let report = Report {
        machine: host::machine(),
        window_s: window.as_secs_f64(),
        books,
        threads: vec![thread.with_cpu(Some(cpu))],
        latency_ns: latency,
        ..Report::default()
    };
    report.derived()
}

impl WindowUsage {
    /// Notes in a report how long server and load waited for a core, and the steal. They make a round void.
    ///
    /// Several threads of one process on one core wait for each other, which is no disturbance. Such a process is not judged.
    pub fn note_in(&self, report: &mut Report, has_one_thread: [bool; 2]) {
        let judged =
            [self.server, self.load].into_iter().zip(has_one_thread).filter(|(_, is_judged)| *is_judged);
        let delays = judged.filter_map(|(used, _)| used.run_delay_share());
        report.run_delay_share = delays.reduce(f64::max);
        report.steal_share = self.steal_share;
    }
}

/// Prints the machine, its network settings, the build, and how busy the machine is.
pub(crate) fn print_machine() {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split(' ').take(3).collect();
    println!("machine   {}", host::machine());
    println!("network   {}", network());
    println!("build     {}", build());
    println!("idle      {}", host::idle().unwrap_or_else(|| "unknown".to_owned()));
    println!("load      {}", if averages.len() == 3 { averages.join(" ") } else { "unknown".to_owned() });
}

/// Describes the interface and the sizes of socket buffers in bytes.
pub(crate) fn network() -> String {
    let buffers = ["rmem_default", "rmem_max", "wmem_default", "wmem_max"].into_iter().filter_map(|name| {
        let bytes = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
        Some(format!("{name} {}", bytes.trim()))
    });
    ["interface lo".to_owned()].into_iter().chain(buffers).collect::<Vec<_>>().join(", ")
}

/// Describes the compiler and its flags.
pub(crate) fn build() -> String {
    let flags = env!("DRUMFIRE_RUSTFLAGS");
    let flags = if flags.is_empty() { "none" } else { flags };
    let (rustc, level) = (env!("DRUMFIRE_RUSTC"), env!("DRUMFIRE_OPT_LEVEL"));
    format!("{rustc}, opt-level {level}, lto {}, RUSTFLAGS {flags}", env!("DRUMFIRE_LTO"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_load_never_share_a_core() {
        let cores = Cores::among(&[3, 5, 7]).expect("there are three");
        assert_eq!(cores, Cores { server: 3, load: 5, between: 7 });
        assert_eq!(cores.to_string(), "server to core 3, load to core 5");
        assert_eq!(Cores::among(&[3, 5]), Ok(Cores { server: 3, load: 5, between: 5 }));
        for few in [&[][..], &[3]] {
            assert!(Cores::among(few).is_err_and(|line| line.contains("two cores")));
        }
    }

    #[test]
    fn memory_and_drops_are_read_by_their_names() {
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_048 * 1_024));
        assert_eq!(resident_of("Name:\tx\n"), None);
        let snmp = "Tcp: a b\nTcp: 1 2\nUdp: InDatagrams RcvbufErrors Other\nUdp: 5 7 9\n";
        assert_eq!((drops_of(snmp), drops_of("Udp: InDatagrams\nUdp: 5\n")), (Some(7), None));
    }

    #[test]
    fn the_cpu_time_is_scaled_to_the_window() {
        let cpu =
            ThreadSample { run_ns: 660_000_000, run_delay_ns: Some(11_000_000), user_s: 0.44, sys_s: 0.22 };
        let used = Usage { window: Duration::from_millis(1_100), cpu };
        let of_window = used.cpu_over(Duration::from_secs(1));
        assert!((of_window.user_s - 0.4).abs() < 1e-9 && (of_window.sys_s - 0.2).abs() < 1e-9);
        assert!((used.core_share() - 0.6).abs() < 1e-9);
        assert!(used.run_delay_share().is_some_and(|share| (share - 0.01).abs() < 1e-9));
    }
}
