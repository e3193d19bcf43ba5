//! The circumstances of a report: flags, versions, the machine, and granted settings.
//!
//! An unknown fact is absent, never zero. The name of a host is not recorded. [`crate::host`] reads the facts.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The version of the report's JSON; it grows when a key changes its meaning or goes away.
pub const REPORT_FORMAT: u32 = 1;

/// The flags that a run was started with, without their leading dashes.
pub type Flags = BTreeMap<String, FlagValue>;

/// The flags in one line: `drain=recvmmsg threads=4`.
#[must_use]
pub fn flags_text(flags: &Flags) -> String {
    let flags: Vec<String> = flags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    flags.join(" ")
}

/// The value of a flag, as a number or a string in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FlagValue {
    /// A whole number.
    Count(u64),
    /// Any other finite number.
    Number(f64),
    /// Everything else; a switch is `on` or `off`.
    Text(String),
}

impl From<u64> for FlagValue {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<u32> for FlagValue {
    fn from(value: u32) -> Self {
        Self::Count(u64::from(value))
    }
}

impl From<usize> for FlagValue {
    fn from(value: usize) -> Self {
        u64::try_from(value).map_or_else(|_| Self::Text(value.to_string()), Self::Count)
    }
}

impl From<f64> for FlagValue {
    /// JSON has no infinity and no "not a number": those become text.
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Text(value.to_string()) }
    }
}

impl From<bool> for FlagValue {
    fn from(is_on: bool) -> Self {
        Self::from(if is_on { "on" } else { "off" })
    }
}

impl From<&str> for FlagValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for FlagValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl fmt::Display for FlagValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(value) => write!(f, "{value}"),
            Self::Number(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value}"),
        }
    }
}

/// The versions of the program that wrote a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The version of drumfire.
    pub drumfire: String,
    /// The toolchain it was built with, when the build knew its name (builds by way of rustup do).
    pub rustc: Option<String>,
    /// `release` or `debug`; figures of a debug build say nothing.
    pub build: String,
    /// [`REPORT_FORMAT`] of the program that wrote the report.
    pub format: u32,
}

impl Versions {
    /// The versions of this very program.
    #[must_use]
    pub fn of_this_build() -> Self {
        Self {
            drumfire: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: option_env!("RUSTUP_TOOLCHAIN").map(str::to_owned),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            format: REPORT_FORMAT,
        }
    }
}

/// The machine that measured, without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: Option<String>,
    /// Cores that are online.
    pub cores: Option<u32>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// All of the memory, in bytes.
    pub memory_bytes: Option<u64>,
}

impl fmt::Display for Machine {
    /// The parts that are known, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.cpu.clone(),
            self.cores.map(|count| if count == 1 { "1 core".to_owned() } else { format!("{count} cores") }),
            self.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30))),
            self.kernel.as_ref().map(|release| format!("kernel {release}")),
        ];
        let known: Vec<String> = parts.into_iter().flatten().collect();
        if known.is_empty() { write!(f, "unknown") } else { write!(f, "{}", known.join(", ")) }
    }
}

/// The settings that the kernel granted, which may differ from the requested ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Granted {
    /// Receive buffer of one socket as read back, in bytes; Linux counts its own overhead in it.
    pub receive_buffer_bytes: Option<u64>,
    /// Send buffer of one socket as read back, in bytes.
    pub send_buffer_bytes: Option<u64>,
    /// Whether datagrams may arrive joined into trains.
    pub gro: Option<bool>,
    /// Whether trains may be handed over for the kernel to cut.
    pub gso: Option<bool>,
    /// The mechanism that spreads datagrams over the group: `tag`, `hash`, or the reason why there is none.
    pub filter: Option<String>,
}

/// The network interface of a run, with its counters and those of UDP.
///
/// The counters include datagrams of all programs on this host, so they are not part of the books.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name, such as `eth0`; absent where it is not known which one carries the address.
    pub name: Option<String>,
    /// The driver of the device behind it; absent where there is none, as behind the loopback.
    pub driver: Option<String>,
    /// Its receive queues.
    pub receive_queues: Option<u32>,
    /// Its send queues.
    pub send_queues: Option<u32>,
    /// The growth of the system's error counters during the run. Names of the interface's counters begin with `rx_` and `tx_`,
    /// names of UDP's counters, for the whole host, with `udp_`.
    pub counted: BTreeMap<String, u64>,
}

impl fmt::Display for Interface {
    /// The parts that are known but for the counts, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = &self.name else { return f.write_str("not told") };
        f.write_str(name)?;
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        if let Some((receive, send)) = self.receive_queues.zip(self.send_queues) {
            write!(f, ", {receive} receive and {send} send queue(s)")?;
        }
        Ok(())
    }
}

/// A thread's CPU time over the window of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Seconds in the program itself.
    pub user_s: f64,
    /// Seconds in the kernel on the program's behalf.
    pub sys_s: f64,
}

impl CpuTime {
    /// Both together, in seconds.
    #[must_use]
    pub fn total_s(self) -> f64 {
        self.user_s + self.sys_s
    }
}

/// Latencies in nanoseconds, from the time a datagram was meant to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of all are at most this.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// 99.9 % are at most this.
    pub p999: u64,
    /// The longest.
    pub max: u64,
    /// How many were measured.
    pub count: u64,
}

impl Latency {
    /// The summary of a histogram of nanoseconds; nothing when it is empty.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            count: histogram.len(),
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_a_number_or_a_string_in_json_and_comes_back_as_it_was() {
        let cases: [(FlagValue, &str); 7] = [
            (4u32.into(), "4"),
            (u64::MAX.into(), "18446744073709551615"),
            (2.5f64.into(), "2.5"),
            (250_000.0f64.into(), "250000.0"),
            (true.into(), "\"on\""),
            ("gather=250".into(), "\"gather=250\""),
            (f64::NAN.into(), "\"NaN\""),
        ];
        for (value, text) in cases {
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
            assert_eq!(serde_json::from_str::<FlagValue>(text).unwrap(), value);
        }
    }

    #[test]
    fn a_machine_is_described_by_what_is_known_of_it() {
        let machine = Machine {
            cpu: Some("Xeon".to_owned()),
            cores: Some(2),
            kernel: Some("6.18".to_owned()),
            memory_bytes: Some(3 << 29),
        };
        assert_eq!(machine.to_string(), "Xeon, 2 cores, 1.5 GiB, kernel 6.18");
        assert_eq!(Machine { cores: Some(1), ..Machine::default() }.to_string(), "1 core");
        assert_eq!(Machine::default().to_string(), "unknown");
    }

    #[test]
    fn flags_stand_in_one_line_by_name() {
        let flags = Flags::from([("threads".to_owned(), 4u32.into()), ("drain".to_owned(), "recv".into())]);
        assert_eq!(flags_text(&flags), "drain=recv threads=4");
    }

    #[test]
    fn the_versions_are_those_of_the_package() {
        let versions = Versions::of_this_build();
        assert_eq!(versions.drumfire, env!("CARGO_PKG_VERSION"));
        assert_eq!(versions.format, REPORT_FORMAT);
        assert_eq!(versions.build == "debug", cfg!(debug_assertions));
    }

    #[test]
    fn what_the_kernel_granted_may_leave_keys_out() {
        let granted: Granted = serde_json::from_str(r#"{"gro":true}"#).unwrap();
        assert_eq!(granted, Granted { gro: Some(true), ..Granted::default() });
    }

    #[test]
    fn an_interface_is_described_by_what_is_known_of_it() {
        let interface = Interface {
            name: Some("eth0".to_owned()),
            driver: Some("virtio_net".to_owned()),
            receive_queues: Some(8),
            send_queues: Some(1),
            counted: BTreeMap::from([("rx_dropped".to_owned(), 3)]),
        };
        assert_eq!(interface.to_string(), "eth0, driver virtio_net, 8 receive and 1 send queue(s)");
        let loopback = Interface { name: Some("lo".to_owned()), ..Interface::default() };
        assert_eq!(
            (loopback.to_string(), Interface::default().to_string()),
            ("lo".into(), "not told".into())
        );
        let text = serde_json::to_string(&interface).unwrap();
        assert_eq!(serde_json::from_str::<Interface>(&text).unwrap(), interface);
        assert_eq!(serde_json::from_str::<Interface>(r#"{"name":"lo"}"#).unwrap(), loopback);
    }

    #[test]
    fn an_empty_histogram_has_no_latency() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        assert_eq!(Latency::of(&histogram), None);
        for value in 1..=1_000u64 {
            histogram.record(value).unwrap();
        }
        let latency = Latency::of(&histogram).unwrap();
        assert_eq!((latency.p50, latency.p90, latency.p99), (500, 900, 990));
        assert_eq!((latency.p999, latency.max, latency.count), (999, 1_000, 1_000));
    }
}
