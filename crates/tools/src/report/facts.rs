//! The circumstances of a report: flags, versions, the machine, and granted settings.
//!
//! An unknown fact is absent, never zero. The name of a host is not recorded. [`crate::host`] reads the facts.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the report's JSON. It increases when a key changes its meaning or is removed.
pub const REPORT_FORMAT: u32 = 2;

/// The flags that a run was started with, without their leading dashes. The value of a switch is `on` or `off`.
pub type Flags = BTreeMap<String, Value>;

/// Returns the fields of `args` as flags. A field without a value is absent.
pub(crate) fn flags_of(args: &impl Serialize) -> Flags {
    // A structure of texts and numbers is always an object.
    let fields: Flags = serde_json::to_value(args).and_then(serde_json::from_value).unwrap_or_default();
    let known = fields.into_iter().filter(|(_, value)| !value.is_null());
    known.map(|(name, value)| (name, switch_text(value))).collect()
}

/// Writes the value of a switch as `on` or `off`.
pub(super) fn switch_text(value: Value) -> Value {
    match value {
        Value::Bool(is_on) => if is_on { "on" } else { "off" }.into(),
        other => other,
    }
}

/// Returns the flags in one line, such as `drain=recvmmsg threads=4`.
pub(crate) fn flags_text(flags: &Flags) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let flags: Vec<String> = flags.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
    flags.join(" ")
}

/// The versions of the program that wrote a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The version of drumfire.
    pub drumfire: String,
    /// The toolchain that built it. `None` if the build did not know its name; builds by rustup do.
    pub rustc: Option<String>,
    /// The profile, `release` or `debug`. Figures of a debug build have no meaning.
    pub build: String,
    /// The [`REPORT_FORMAT`] of the program that wrote the report.
    pub format: u32,
}

impl Versions {
    /// Returns the versions of this program.
    pub fn of_this_build() -> Self {
        Self {
            drumfire: env!("CARGO_PKG_VERSION").to_owned(),
            rustc: option_env!("RUSTUP_TOOLCHAIN").map(str::to_owned),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            format: REPORT_FORMAT,
        }
    }
}

/// The machine on which the report was measured, without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of the processor. `None` if the system does not report it.
    pub cpu: Option<String>,
    /// The number of cores that are online.
    pub cores: Option<u32>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The size of the memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl fmt::Display for Machine {
    /// Returns the known fields in one line.
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
    /// The receive buffer of one socket in bytes, as the kernel reports it. On Linux it includes the kernel's overhead.
    pub receive_buffer_bytes: Option<u64>,
    /// The send buffer of one socket in bytes, as the kernel reports it.
    pub send_buffer_bytes: Option<u64>,
    /// Whether the kernel may coalesce received datagrams into trains.
    pub gro: Option<bool>,
    /// Whether the kernel splits trains that are sent in one call.
    pub gso: Option<bool>,
    /// The mechanism that spreads datagrams over the group: `tag`, `hash`, or the reason why there is none.
    pub filter: Option<String>,
}

/// A thread's CPU time over the window of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// The user time in seconds.
    pub user_s: f64,
    /// The system time in seconds.
    pub sys_s: f64,
}

/// Latencies in nanoseconds, from the time a datagram was meant to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The maximum.
    pub max: u64,
    /// The number of measurements.
    pub count: u64,
}

impl Latency {
    /// Returns the summary of a histogram of nanoseconds, or `None` if it is empty.
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
    fn known_facts_are_printed_in_one_line() {
        let machine = Machine {
            cpu: Some("Xeon".to_owned()),
            cores: Some(2),
            kernel: Some("6.18".to_owned()),
            memory_bytes: Some(3 << 29),
        };
        assert_eq!(machine.to_string(), "Xeon, 2 cores, 1.5 GiB, kernel 6.18");
        assert_eq!(Machine { cores: Some(1), ..Machine::default() }.to_string(), "1 core");
        assert_eq!(Machine::default().to_string(), "unknown");
        let flags = Flags::from([("threads".to_owned(), 4u32.into()), ("drain".to_owned(), "recv".into())]);
        assert_eq!(flags_text(&flags), "drain=recv threads=4");
    }

    #[test]
    fn a_latency_has_the_quantiles_of_its_histogram() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        assert_eq!(Latency::of(&histogram), None);
        (1..=1_000u64).for_each(|value| histogram.record(value).unwrap());
        let expected = Latency { p50: 500, p90: 900, p99: 990, p999: 999, max: 1_000, count: 1_000 };
        assert_eq!(Latency::of(&histogram), Some(expected));
    }
}
