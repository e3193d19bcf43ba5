//! Parsers for the values of single flags. Each error names the accepted range or shows an example.
//!
//! Rules about two flags belong to the command line that has both.

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use drumfire_socket::Wait;

use crate::limits::{MAX_GATHER, MAX_RUN, MIN_RUN};

/// The receiver that a sender connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The text on the command line, for the report.
    pub text: String,
    /// All addresses of the host, at least one, in the order of the resolver.
    pub addresses: Vec<SocketAddr>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with(":0") {
            return Err("nothing listens on port 0; give the port that `receiver` printed".to_owned());
        }
        let addresses = resolve(text)?;
        if addresses.iter().any(|address| address.ip().is_unspecified()) {
            return Err("that address names no host; give 127.0.0.1 and the port for this host".to_owned());
        }
        Ok(Self { text: text.to_owned(), addresses })
    }
}

/// Parses an address to bind. Port 0 asks for a free port.
pub(crate) fn bind_address(text: &str) -> Result<SocketAddr, String> {
    resolve(text)?.first().copied().ok_or_else(|| "the name has no address".to_owned())
}

/// Returns the addresses of `HOST:PORT`, at least one.
fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
    const EXAMPLES: &str = "give HOST:PORT, such as 127.0.0.1:9000 or [::1]:9000";
    // The resolver gets names only: no addresses, and no text that cannot be a name, such as an IPv6 address without brackets.
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = |host: &str| {
        let is_foreign = |c: char| c.is_whitespace() || c.is_control() || "[]:/".contains(c);
        !host.is_empty() && !host.contains(is_foreign)
    };
    text.rsplit_once(':').filter(|(host, port)| is_host(host) && is_port(port)).ok_or(EXAMPLES)?;
    let found = text.to_socket_addrs().map_err(|error| {
        format!("the name does not resolve ({error}); check its spelling, or give an address")
    })?;
    Some(found.collect::<Vec<_>>())
        .filter(|found| !found.is_empty())
        .ok_or_else(|| "the name has no address".to_owned())
}

/// Parses a whole number in a range. Unlike the ranges of clap, the error names the range for a text that is no number too.
pub(crate) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("give a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a whole number of seconds in a range.
pub(crate) fn seconds(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| number(range.clone())(text).map(Duration::from_secs)
}

/// Parses the length of a run in seconds, which may have a fraction.
pub(crate) fn run_time(text: &str) -> Result<Duration, String> {
    let run = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    run.filter(|run| (MIN_RUN..=MAX_RUN).contains(run))
        .ok_or_else(|| format!("give {} to {} seconds", MIN_RUN.as_secs_f64(), MAX_RUN.as_secs()))
}

/// Parses a wait strategy in the form in which it is printed. The time of `gather` may be left out.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    let gather = |micros: &str| {
        let gather = Duration::from_micros(micros.parse().ok()?);
        (gather > Duration::ZERO && gather <= MAX_GATHER).then_some(Wait::Gather(gather))
    };
    let wait = match text {
        "notify" => Some(Wait::Notify),
        "spin" => Some(Wait::Spin),
        "gather" => Some(Wait::Gather(Wait::GATHER)),
        other => other.strip_prefix("gather=").and_then(gather),
    };
    let longest = MAX_GATHER.as_micros();
    wait.ok_or_else(|| format!("give notify, gather, gather=1 to gather={longest} (microseconds), or spin"))
}

/// Parses the name of a file, or `-` for standard output.
pub(crate) fn json_file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        Err("give a file name, or - for standard output".to_owned())
    } else {
        Ok(text.into())
    }
}

/// Parses the name of a file that cannot be standard output.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    match text {
        "" | "-" => Err("give a file name; only --json writes to standard output".to_owned()),
        name => Ok(name.into()),
    }
}

pub(crate) fn svg_file(text: &str) -> Result<PathBuf, String> {
    let path = file(text)?;
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg { Ok(path) } else { Err("give a file name that ends in .svg".to_owned()) }
}

/// A duration as a number of seconds.
pub(crate) mod in_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
