//! A client that retires ids as fast as it can and acknowledges nothing costs the server no more than what may be in
//! flight to it.

use crate::counted::RECEIVE_BYTES;
use crate::harness::{CLIENT, SERVER, address};
use crate::puppet::Puppet;
use allocation_counter::measure;
use drumfire_proto::{CloseReason, Inbound};
use drumfire_tries::tries;
use drumfire_wire::FrameWriter;
use std::time::Duration;

/// All of them take less than the ten seconds after which a silent client times out.
fn retirements() -> u64 {
    tries(1_000_000).into()
}

#[test]
fn retiring_ids_a_million_times_costs_no_more_memory() {
    let mut puppet = Puppet::connected(1);
    let begun = puppet.world.now;
    let (mut held, mut most, mut most_at_first) = (0_i64, 0, 0);
    let mut memory = [0; 1_472];
    for sequence in 1..=retirements() {
        let mut frame = [0; 16];
        let mut writer = FrameWriter::new(&mut frame[..]);
        writer.retire_connection_id(sequence).unwrap();
        let bytes = writer.written_bytes();
        let mut datagram = puppet.datagram(&frame[..bytes]);
        puppet.world.now = begun.after(Duration::from_micros(9 * sequence));
        let (now, server) = (puppet.world.now(), &mut puppet.world.ends[SERVER]);
        let counted = measure(|| {
            let from = address(CLIENT).into();
            server.handle_datagrams(now, [Inbound { from, bytes: &mut datagram }]);
            server.handle_timeout(now);
            while server.poll_transmit(now, &mut memory).is_some() {}
        });
        held += counted.bytes_current;
        most = most.max(held);
        // By then the limit of data in flight is reached.
        if sequence <= 5_000 {
            most_at_first = most;
        }
    }
    puppet.world.run(Duration::ZERO);
    assert_eq!(puppet.ending(), None, "each retirement is allowed");
    assert_eq!(most, most_at_first, "after five thousand, and in all");
    assert!(most <= RECEIVE_BYTES, "{most} B");
    puppet.world.run(Duration::from_secs(10));
    assert_eq!(puppet.ending(), Some(CloseReason::Unacknowledged));
}
