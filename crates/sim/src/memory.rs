//! The memory of a scenario: of each end of a connection, and of the whole world.

use crate::scenario::Scenario;

/// The send memory of a connection in bytes. It is less than the default, so that scenarios fill it.
const SEND_MEMORY_BYTES: usize = 256 * 1_024;

/// The receive memory of a connection in bytes. Credit begins with a quarter of it, and may double.
const RECEIVE_MEMORY_BYTES: usize = 512 * 1_024;

/// Returns the memory of each end of a connection, for sending and for receiving.
pub(crate) fn memories(scenario: &Scenario) -> (usize, usize) {
    scenario.memory_bytes.map_or((SEND_MEMORY_BYTES, RECEIVE_MEMORY_BYTES), |bytes| (bytes, bytes))
}

/// Memory that messages share on their way to an application: five pieces of 64 KiB.
const PIECES_BYTES: u64 = 5 * 64 * 1_024;

/// Late, duplicated, and queued datagrams on both links of a client.
const LINKS_BYTES: u64 = 512 * 1_024;

/// A worker's socket, its tables, an attacker's datagrams on their way, and the scenario's own records.
const TABLES_BYTES: u64 = 8 * 1_024 * 1_024;

/// The records of all clients and attackers' addresses of an hour.
const HOUR_BYTES: u64 = 64 * 1_024 * 1_024;

/// Returns the most memory that the world of a scenario may hold.
fn most_bytes(scenario: &Scenario) -> u64 {
    let (send, receive) = memories(scenario);
    // An application on another thread may fill the send memory before it learns that broadcasts have filled it.
    let is_filled_twice = scenario.workers.is_some() && scenario.group.is_some();
    // With a tenth for the tables of the connection.
    let end_bytes = (send + receive) as u64 * 11 / 10;
    let second_bytes = if is_filled_twice { send as u64 * 11 / 10 } else { 0 };
    let per_client = 2 * (end_bytes + PIECES_BYTES) + second_bytes + LINKS_BYTES;
    let workers = scenario.workers.as_ref().map_or(1, |plan| plan.workers);
    let hour_bytes = if scenario.is_hour { HOUR_BYTES } else { 0 };
    scenario.clients.len() as u64 * per_client + TABLES_BYTES * u64::from(workers) + hour_bytes
}

/// Checks the peak memory of a world. The sum shows that a limit was exceeded, but not which one. Tests of the core
/// count the memory of one connection.
pub(crate) fn check_memory(held_bytes: u64, scenario: &Scenario) -> Result<(), String> {
    let (clients, most) = (scenario.clients.len(), most_bytes(scenario));
    if held_bytes > most {
        return Err(format!("it held {held_bytes} bytes, and {clients} clients may hold {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_the_limit_is_an_error() {
        let scenario = Scenario::from_seed(1);
        let most = most_bytes(&scenario);
        assert_eq!(check_memory(most, &scenario), Ok(()));
        assert!(check_memory(most + 1, &scenario).unwrap_err().contains("clients may hold"));
        let tight = Scenario { memory_bytes: Some(65_536), ..scenario };
        assert!(check_memory(most, &tight).is_err(), "smaller memories hold less");
    }
}
