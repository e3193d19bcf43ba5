//! The clients there are, each under a handle that names it once and never another.
//!
//! It judges handles and threads; what clients do is not its business.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::connect::DRUMFIRE_CLIENTS_MAX;
use crate::error::Failure;
use crate::held::Held;
use crate::status::DrumfireStatus;

/// Names a client. Zero names none, and no number names two clients, until 4,294,967,295 more were connected.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrumfireClient(pub u64);

/// A client, for the length of a call or for as long as the table has it.
type Shared = Arc<Mutex<Held>>;

static TABLE: Mutex<Table> = Mutex::new(Table { slots: Vec::new(), connected: 0 });

struct Table {
    slots: Vec<Option<Entry>>,
    /// Clients there ever were, wrapping.
    connected: u32,
}

struct Entry {
    /// Told apart by it from who had the slot before.
    stamp: u32,
    owner: ThreadId,
    held: Shared,
}

/// Takes in a client of the calling thread.
///
/// # Errors
/// `TooManyClients`.
pub(crate) fn insert(held: Held) -> Result<DrumfireClient, Failure> {
    let entry = Entry { stamp: 0, owner: std::thread::current().id(), held: Arc::new(Mutex::new(held)) };
    table().insert(entry).ok_or_else(|| {
        let text = format!("there are {DRUMFIRE_CLIENTS_MAX} clients: free one");
        Failure::new(DrumfireStatus::TooManyClients, text)
    })
}

/// The client of this handle, for the thread that connected it.
///
/// # Errors
/// `BadHandle`, `WrongThread`.
pub(crate) fn find(client: DrumfireClient) -> Result<Shared, Failure> {
    let table = table();
    let entry = table.slot(client).and_then(|slot| table.slots.get(slot)?.as_ref()).ok_or_else(stale)?;
    if entry.owner != std::thread::current().id() {
        let text = "this client belongs to the thread that connected it";
        return Err(Failure::new(DrumfireStatus::WrongThread, text));
    }
    Ok(Arc::clone(&entry.held))
}

/// Forgets the client, from any thread; it is closed when what is answered is dropped and no call uses it any more.
///
/// # Errors
/// `BadHandle`.
pub(crate) fn remove(client: DrumfireClient) -> Result<Shared, Failure> {
    let mut table = table();
    let slot = table.slot(client).ok_or_else(stale)?;
    let entry = table.slots.get_mut(slot).and_then(Option::take).ok_or_else(stale)?;
    Ok(entry.held)
}

fn table() -> MutexGuard<'static, Table> {
    // Nothing that can panic happens between two changes of it.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stale() -> Failure {
    Failure::new(
        DrumfireStatus::BadHandle,
        "no client has this handle: it is zero, was freed, or was never one",
    )
}

impl Table {
    fn insert(&mut self, entry: Entry) -> Option<DrumfireClient> {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.slots.len() < DRUMFIRE_CLIENTS_MAX as usize => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        self.connected = self.connected.wrapping_add(1);
        // Scattered, so that small numbers and addresses are no handles. An odd factor gives no number twice.
        let stamp = self.connected.wrapping_mul(0x9e37_79b1);
        *self.slots.get_mut(slot)? = Some(Entry { stamp, ..entry });
        Some(DrumfireClient(u64::from(stamp) << 32 | (slot as u64 + 1)))
    }

    /// The slot that this client has now.
    fn slot(&self, client: DrumfireClient) -> Option<usize> {
        let slot = usize::try_from(client.0 & u64::from(u32::MAX)).ok()?.checked_sub(1)?;
        let entry = self.slots.get(slot)?.as_ref()?;
        (u64::from(entry.stamp) == client.0 >> 32).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::Client;

    fn entry() -> Entry {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let held = Arc::new(Mutex::new(Held::new(Client::connect_dev(nobody).unwrap())));
        Entry { stamp: 0, owner: std::thread::current().id(), held }
    }

    #[test]
    fn a_slot_is_used_again_and_its_old_handle_is_not() {
        let mut table = Table { slots: Vec::new(), connected: 0 };
        let first = table.insert(entry()).unwrap();
        assert_eq!(table.slot(first), Some(0));
        table.slots[0] = None;
        assert_eq!(table.slot(first), None);
        let second = table.insert(entry()).unwrap();
        assert_eq!((table.slot(first), table.slot(second)), (None, Some(0)));
        assert_ne!(first, second);
    }

    #[test]
    fn numbers_that_were_never_given_name_nobody() {
        let mut table = Table { slots: Vec::new(), connected: 0 };
        let handle = table.insert(entry()).unwrap().0;
        let address = std::ptr::from_ref(&handle).addr() as u64;
        for made_up in
            [0, 1, 2, 1 << 32, u64::MAX, handle + 1, handle ^ (1 << 32), handle & !0xffff_ffff, address]
        {
            assert_eq!(table.slot(DrumfireClient(made_up)), None, "{made_up:#x}");
        }
    }

    #[test]
    fn a_full_table_takes_nobody_until_one_leaves() {
        let mut table = Table { slots: Vec::new(), connected: u32::MAX - 1 };
        let shared = entry();
        let another = || Entry { held: Arc::clone(&shared.held), ..shared };
        let handles: Vec<_> =
            (0..DRUMFIRE_CLIENTS_MAX).map(|_| table.insert(another()).expect("room")).collect();
        assert_eq!(table.insert(another()), None);
        table.slots[3] = None;
        assert_eq!(table.insert(another()).map(|handle| handle.0 & 0xffff_ffff), Some(4));
        assert!(handles.iter().all(|handle| handle.0 != 0));
    }
}
