//! What a whole world may hold in memory at a time, counted by the allocator: every end keeps to its caps, whatever the links, the
//! applications and the attackers do.
//!
//! It is one number for all that lives in the world, so it tells that something grew, and not what. What one connection may
//! hold against each of a dozen hostile strategies, a test of the core counts.

/// The caps of one end of a connection: messages on their way into its connection, in it, and out of it, 256 KiB each, and a tenth.
const END_BYTES: u64 = 3 * 256 * 1_024 * 11 / 10;

/// Memory that messages share on their way to one end's application: five pieces of 64 KiB.
const PIECES_BYTES: u64 = 5 * 64 * 1_024;

/// What links keep of one client, both ways: late, doubled, or queued before a slow part.
const ON_THE_WAY_BYTES: u64 = 512 * 1_024;

/// A worker's socket, its tables of sources, tokens and resets, what attackers have on the way, and the books of the scenario.
const TABLES_BYTES: u64 = 8 * 1_024 * 1_024;

/// What a world keeps of all who came and went within an hour, and of the addresses that attackers wrote meanwhile.
const HOUR_BYTES: u64 = 64 * 1_024 * 1_024;

/// Refuses a world that held more than so many clients may, at a server of so many workers.
pub(crate) fn check(held_bytes: u64, clients: usize, workers: u16, is_hour: bool) -> Result<(), String> {
    let of_client = 2 * (END_BYTES + PIECES_BYTES) + ON_THE_WAY_BYTES;
    let most = u64::try_from(clients)
        .unwrap_or(u64::MAX)
        .saturating_mul(of_client)
        .saturating_add(TABLES_BYTES * u64::from(workers))
        .saturating_add(if is_hour { HOUR_BYTES } else { 0 });
    if held_bytes > most {
        return Err(format!("it held {held_bytes} bytes at a time, of {most} that {clients} clients may"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_too_many_is_named() {
        let most = TABLES_BYTES + 3 * (2 * (END_BYTES + PIECES_BYTES) + ON_THE_WAY_BYTES);
        assert_eq!(check(most, 3, 1, false), Ok(()));
        assert_eq!(check(most + HOUR_BYTES, 3, 1, true), Ok(()));
        assert!(check(most + 1, 3, 1, false).unwrap_err().contains("3 clients"));
    }
}
