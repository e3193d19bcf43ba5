//! A receive buffer that overflows: the kernel's drops are named, and nothing else is missing.

use crate::report::Report;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use crate::{
    client::{Client, foreign_socket},
    process::waiting_receiver,
};

fn flood(flags: &str) -> Report {
    Report::of_run(&format!("--secs 0.3 --rate 0 --send gso --receive-buffer 4096 {flags}"))
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn overflows_without_gro_are_counted_to_the_datagram() {
    for flags in ["--threads 1", "--threads 4", "--threads 1 --stage raw", "--threads 1 --drain recv"] {
        let report = flood(&format!("--gro off {flags}"));
        assert!(report.number("/drops/kernel_receive_queue") > 0, "{flags}: {:#}", report.0);
        let by_thread = report.0["threads"].as_array().unwrap().iter();
        let by_thread: u64 = by_thread.map(|thread| thread["kernel_drops"].as_u64().unwrap()).sum();
        assert_eq!(by_thread, report.number("/drops/kernel_receive_queue"), "{flags}");
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn overflows_with_gro_are_counted_by_the_gaps_in_flows() {
    for flags in
        ["--gro on --threads 1", "--gro on --threads 4", "--gro on --threads 1 --stage raw", "--gro auto"]
    {
        let report = flood(flags);
        assert!(report.number("/drops/kernel_receive_queue") > 0, "{flags}: {:#}", report.0);
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn foreign_datagrams_that_fill_a_buffer_leave_the_books_closed() {
    const FOREIGN: u64 = 20_000;
    let (receiver, address) =
        waiting_receiver("--threads 1 --drain recv --gro off --receive-buffer 4096 --json -");
    let mut client = Client::begin(address, 1);
    let from = foreign_socket(address);
    for _ in 0..FOREIGN / 100 {
        for _ in 0..100 {
            from.send(&[0xff; 1_200]).unwrap();
        }
        client.send(0, 1);
    }
    let received = client.finish();
    assert_eq!(received.books.unexplained(), 0);
    assert!(received.foreign.contains_key("kernel_receive_queue"), "{received:?}");
    assert_eq!(received.foreign.values().sum::<u64>(), FOREIGN, "{received:?}");
    Report::of(&receiver.end().with_code(0));
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[test]
fn without_kernel_drop_counts_losses_are_called_unknown() {
    let report = flood("");
    assert!(report.number("/unexplained") > 0, "{:#}", report.0);
    let notes = report.0["notes"].as_array().unwrap();
    let said = "the kernel's drops are not known on this platform";
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with(said)), "{notes:?}");
    assert!(report.0["threads"][0]["kernel_drops"].is_null());
}
