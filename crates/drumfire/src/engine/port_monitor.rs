//! A thread that checks every few seconds whether other processes have sockets on a server's port, and reports each change.
//!
//! It cannot close such a socket, which stays until its process ends. A server whose port is not shared needs no monitor.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire_socket::PortWatch;

use crate::base::sync::{Mutex, lock};

/// The time between two scans. A new socket is reported after this time, plus the duration of a scan.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of addresses in one report.
const ADDRESSES_MAX: usize = 4;

/// The result of a scan for sockets on the port that do not belong to the server.
///
/// The bound address of each foreign socket, of which several can have the same, or the reason why the scan failed.
type PortScan = Result<Vec<IpAddr>, String>;

/// Returns the number of foreign sockets, or `None` if the scan failed.
fn count(scan: &PortScan) -> Option<usize> {
    scan.as_ref().ok().map(Vec::len)
}

/// A thread that scans the port until [`PortMonitor::end`].
pub(crate) struct PortMonitor {
    /// The number of foreign sockets in the last scan. `None` if the scan failed, or before the first one.
    count: Arc<Mutex<Option<usize>>>,
    /// The thread, and what ends it when it is dropped. `None` after [`PortMonitor::end`].
    running: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl PortMonitor {
    /// Starts the thread, which reports to standard error.
    pub(crate) fn start(watch: PortWatch) -> io::Result<Self> {
        let address = watch.address();
        let report = move |before: &PortScan, now: &PortScan| write_report(address, before, now);
        Self::begin(SCAN_INTERVAL, move || watch.scan().map_err(|error| error.to_string()), report)
    }

    /// Starts a thread that calls `scan_port` at the interval `interval`. Passes each change of the result to `report`, with the previous
    /// result. The initial result is "no foreign sockets".
    fn begin(
        interval: Duration,
        scan_port: impl Fn() -> PortScan + Send + 'static,
        report: impl Fn(&PortScan, &PortScan) + Send + 'static,
    ) -> io::Result<Self> {
        let (end, is_over) = channel::<()>();
        let count = Arc::<Mutex<Option<usize>>>::default();
        let last_count = Arc::clone(&count);
        let run = move || {
            let mut before: PortScan = Ok(Vec::new());
            loop {
                let scan = scan_port();
                // The server closes its sockets after the end, so a scan at that time can be wrong.
                if is_over.try_recv() == Err(TryRecvError::Disconnected) {
                    return;
                }
                *lock(&last_count) = self::count(&scan);
                if scan != before {
                    report(&before, &scan);
                    before = scan;
                }
                if is_over.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("drumfire-monitor".to_owned()).spawn(run)?;
        Ok(Self { count, running: Mutex::new(Some((end, thread))) })
    }

    /// Returns the number of foreign sockets in the last scan. `None` if the scan failed, or before the first one.
    pub(crate) fn count(&self) -> Option<usize> {
        *lock(&self.count)
    }

    /// Stops all reports and lets the thread end. Call it before the server closes its own sockets, and then join the thread.
    pub(crate) fn end(&self) -> Option<JoinHandle<()>> {
        lock(&self.running).take().map(|(_end, thread)| thread)
    }
}

impl Drop for PortMonitor {
    fn drop(&mut self) {
        // A thread that panicked has ended as well.
        let _ = self.end().map(JoinHandle::join);
    }
}

/// Writes a change to standard error.
fn write_report(address: SocketAddr, before: &PortScan, now: &PortScan) {
    // An error is ignored, because the statistics also contain the count.
    let _ = writeln!(io::stderr(), "drumfire: {}", report_text(address, before, now));
}

/// Returns the report of a change, without a line break.
fn report_text(address: SocketAddr, before: &PortScan, now: &PortScan) -> String {
    match now {
        Ok(others) if others.is_empty() => match before {
            Ok(_) => format!("no other process is on the UDP port of {address} any more"),
            Err(_) => format!("no other process is on the UDP port of {address}"),
        },
        Ok(others) => {
            let mut addresses: Vec<_> = others.iter().map(IpAddr::to_string).collect();
            addresses.sort_unstable();
            addresses.dedup();
            let more = if addresses.len() > ADDRESSES_MAX { ", and more" } else { "" };
            addresses.truncate(ADDRESSES_MAX);
            format!(
                "ALARM: {} of other processes on the UDP port of {address} (bound to {}{more}), which may receive new clients: find the processes with `ss -ulnp 'sport = :{port}'`, end them, and run each server under a user \
                 of its own",
                sockets(others.len()),
                addresses.join(", "),
                port = address.port(),
            )
        }
        Err(reason) => {
            format!("it is unknown whether other processes are on the UDP port of {address}: {reason}")
        }
    }
}

fn sockets(count: usize) -> String {
    match count {
        1 => "1 socket".to_owned(),
        // A scan returns at most this number of sockets, so there can be more.
        PortWatch::MAX_FOUND.. => format!("{count} sockets or more"),
        _ => format!("{count} sockets"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The longest time to wait for a report.
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn others(addresses: &[&str]) -> PortScan {
        Ok(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }

    fn unknown() -> PortScan {
        Err("no list".to_owned())
    }

    #[test]
    fn every_change_is_reported_once_and_counted() {
        let (script, scans) = channel();
        let (sender, reports) = channel();
        let monitor = PortMonitor::begin(
            Duration::ZERO,
            move || scans.recv().unwrap_or(Ok(Vec::new())),
            move |before: &PortScan, now: &PortScan| sender.send((count(before), count(now))).unwrap(),
        )
        .unwrap();
        assert_eq!(monitor.count(), None, "there was no scan yet");
        let one = || others(&["127.0.0.1"]);
        let two = || others(&["127.0.0.1", "127.0.0.1"]);
        for scan in [others(&[]), others(&[]), one(), one(), one(), two(), unknown(), unknown(), one()] {
            script.send(scan).unwrap();
        }
        for change in [(Some(0), Some(1)), (Some(1), Some(2)), (Some(2), None), (None, Some(1))] {
            assert_eq!(reports.recv_timeout(TIMEOUT).unwrap(), change);
        }
        assert_eq!(monitor.count(), Some(1));
        drop(script);
        assert_eq!(reports.recv_timeout(TIMEOUT).unwrap(), (Some(1), Some(0)));
        assert_eq!(monitor.count(), Some(0));
        drop(monitor);
        assert!(reports.recv().is_err(), "the thread ended without another report");
    }

    #[test]
    fn a_scan_that_completes_after_the_end_is_not_reported() {
        let (script, scans) = channel::<PortScan>();
        let (sender, reports) = channel();
        let scan_port = move || scans.recv().unwrap();
        let report = move |_: &PortScan, now: &PortScan| sender.send(count(now)).unwrap();
        let monitor = PortMonitor::begin(SCAN_INTERVAL, scan_port, report).unwrap();
        let thread = monitor.end().unwrap();
        script.send(unknown()).unwrap();
        thread.join().unwrap();
        assert!(reports.recv().is_err());
        assert_eq!(monitor.count(), None);
    }

    #[test]
    fn the_end_interrupts_the_wait_for_the_next_scan() {
        const NEVER: Duration = Duration::from_secs(1 << 40);
        let (sender, reports) = channel();
        let report = move |_: &PortScan, now: &PortScan| sender.send(count(now)).unwrap();
        let monitor = PortMonitor::begin(NEVER, || others(&["::1"]), report).unwrap();
        assert_eq!(reports.recv_timeout(TIMEOUT).unwrap(), Some(1));
        drop(monitor);
        assert!(reports.recv().is_err());
    }

    #[test]
    fn the_report_names_the_address_the_count_and_a_remedy() {
        let address: SocketAddr = "0.0.0.0:4000".parse().unwrap();
        let none = others(&[]);
        let alarm = report_text(address, &none, &others(&["127.0.0.1", "0.0.0.0", "127.0.0.1"]));
        for part in [
            "UDP port of 0.0.0.0:4000",
            "3 sockets of other processes",
            "(bound to 0.0.0.0, 127.0.0.1)",
            "ss -ulnp",
        ] {
            assert!(alarm.contains(part), "{part} in {alarm}");
        }
        let five = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"];
        assert!(report_text(address, &none, &others(&five)).contains("127.0.0.4, and more)"));
        assert!(report_text(address, &none, &others(&["::1"; 1])).contains("1 socket of"));
        assert!(
            report_text(address, &none, &others(&["::1"; PortWatch::MAX_FOUND]))
                .contains("1024 sockets or more")
        );
        assert!(report_text(address, &others(&five), &none).ends_with("any more"));
        assert!(!report_text(address, &unknown(), &none).ends_with("any more"));
        assert!(report_text(address, &none, &unknown()).ends_with("no list"));
        for report_text in
            [alarm, report_text(address, &unknown(), &none), report_text(address, &none, &unknown())]
        {
            assert!(!report_text.contains('\n'));
        }
    }
}
