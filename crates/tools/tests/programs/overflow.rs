//! A receive buffer that overflows: the kernel's drops are named, and nothing else is missing.

use drumfire_tools::report::Report;

use crate::report::report_of_run;
fn flood(flags: &str) -> Report {
    report_of_run(&format!("--secs 0.3 --rate 0 --send gso --receive-buffer 4096 {flags}"))
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod with_drop_counts {
    use drumfire_tools::report::KERNEL_RECEIVE_QUEUE;

    use super::flood;
    use crate::client::{Client, foreign_socket};
    use crate::process::waiting_receiver;
    use crate::report::report_of;

    #[test]
    fn overflows_without_gro_are_counted_to_the_datagram() {
        for flags in ["--threads 1", "--threads 4", "--threads 1 --stage raw", "--threads 1 --drain recv"] {
            let report = flood(&format!("--gro off {flags}"));
            let drops = report.books.drops[KERNEL_RECEIVE_QUEUE];
            assert!(drops > 0, "{flags}: {report:#?}");
            let by_thread = report.threads.iter().map(|thread| thread.kernel_drops);
            assert_eq!(by_thread.sum::<Option<u64>>(), Some(drops), "{flags}");
        }
    }

    #[test]
    fn overflows_with_gro_are_counted_by_the_gaps_in_flows() {
        for flags in
            ["--gro on --threads 1", "--gro on --threads 4", "--gro on --threads 1 --stage raw", "--gro auto"]
        {
            let report = flood(flags);
            assert!(report.books.drops[KERNEL_RECEIVE_QUEUE] > 0, "{flags}: {report:#?}");
        }
    }

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
        report_of(&receiver.end().with_code(0));
    }
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
#[test]
fn without_kernel_drop_counts_losses_are_called_unknown() {
    let report = flood("");
    assert!(report.books.unexplained() > 0, "{report:#?}");
    let said = "the kernel's drops are not known on this platform";
    assert!(report.notes.iter().any(|note| note.starts_with(said)), "{:?}", report.notes);
    assert_eq!(report.threads[0].kernel_drops, None);
}
