//! The table of clients. A handle names one client, and is not reused for another one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::client::BufferedClient;
use crate::connect::DRUMFIRE_CLIENTS_MAX;
use crate::error::Failure;
use crate::status::DrumfireStatus;

/// A handle of a client. Zero is never a valid handle. A number is used again only after 4,294,967,295 other clients
/// were connected.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrumfireClient(pub u64);

/// A client that is shared between the table and the calls in progress.
type SharedClient = Arc<Mutex<BufferedClient>>;

static TABLE: Mutex<Table> = Mutex::new(Table { slots: Vec::new(), reserved_count: 0, inserted_count: 0 });

struct Table {
    slots: Vec<Option<Entry>>,
    /// The number of slots that are promised to clients that connect now.
    reserved_count: usize,
    /// The number of clients that were ever inserted. It wraps.
    inserted_count: u32,
}

struct Entry {
    /// Distinguishes this client from earlier clients in the same slot.
    generation: u32,
    owner: ThreadId,
    client: SharedClient,
}

/// A promise that the table has room for one more client. Dropping it gives the room back.
pub(crate) struct Reservation(());

/// Reserves room for a client, so that no client is refused after it has sent its first packet.
///
/// # Errors
/// Returns `TooManyClients` if the table is full.
pub(crate) fn reserve() -> Result<Reservation, Failure> {
    if table().reserve() {
        return Ok(Reservation(()));
    }
    let text = format!("there are {DRUMFIRE_CLIENTS_MAX} clients: free one");
    Err(Failure::new(DrumfireStatus::TooManyClients, text))
}

impl Reservation {
    /// Inserts a client, which belongs to the calling thread from now on.
    pub(crate) fn insert(self, client: BufferedClient) -> DrumfireClient {
        let owner = std::thread::current().id();
        let entry = Entry { generation: 0, owner, client: Arc::new(Mutex::new(client)) };
        table().insert(entry)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        table().reserved_count -= 1;
    }
}

/// Returns the client of this handle if the calling thread owns it.
///
/// # Errors
/// Returns `BadHandle` or `WrongThread`.
pub(crate) fn find(handle: DrumfireClient) -> Result<SharedClient, Failure> {
    let table = table();
    let entry = table.slot(handle).and_then(|slot| table.slots.get(slot)?.as_ref()).ok_or_else(bad_handle)?;
    if entry.owner != std::thread::current().id() {
        let text = "this client belongs to the thread that connected it";
        return Err(Failure::new(DrumfireStatus::WrongThread, text));
    }
    Ok(Arc::clone(&entry.client))
}

/// Removes the client. Any thread may call it. The client is closed when the returned reference is dropped and no call
/// uses the client any more.
///
/// # Errors
/// Returns `BadHandle`.
pub(crate) fn remove(handle: DrumfireClient) -> Result<SharedClient, Failure> {
    let mut table = table();
    let slot = table.slot(handle).ok_or_else(bad_handle)?;
    let entry = table.slots.get_mut(slot).and_then(Option::take).ok_or_else(bad_handle)?;
    Ok(entry.client)
}

fn table() -> MutexGuard<'static, Table> {
    // No code that holds the lock can panic between two changes of the table, so a poisoned table is consistent.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bad_handle() -> Failure {
    let text = "no client has this handle: it is zero, was freed, or was never issued";
    Failure::new(DrumfireStatus::BadHandle, text)
}

impl Table {
    /// Reserves a slot. Returns false if all slots are used or reserved.
    fn reserve(&mut self) -> bool {
        let used_count = self.slots.iter().flatten().count();
        let has_room = used_count + self.reserved_count < DRUMFIRE_CLIENTS_MAX as usize;
        self.reserved_count += usize::from(has_room);
        has_room
    }

    /// Inserts a client for which a slot is reserved.
    fn insert(&mut self, entry: Entry) -> DrumfireClient {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.inserted_count = self.inserted_count.wrapping_add(1);
        // Scatters the generations, so that small numbers and addresses are not valid handles. Multiplying by an odd
        // number is a bijection, so no generation repeats before the counter wraps.
        let generation = self.inserted_count.wrapping_mul(0x9e37_79b1);
        self.slots[slot] = Some(Entry { generation, ..entry });
        DrumfireClient(u64::from(generation) << 32 | (slot as u64 + 1))
    }

    /// Returns the slot of this handle if the client still exists.
    fn slot(&self, handle: DrumfireClient) -> Option<usize> {
        let slot = usize::try_from(handle.0 & u64::from(u32::MAX)).ok()?.checked_sub(1)?;
        let entry = self.slots.get(slot)?.as_ref()?;
        (u64::from(entry.generation) == handle.0 >> 32).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::{Client, ClientConfig, ServerKey};

    fn entry() -> Entry {
        let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut client = Client::new(ClientConfig::default()).unwrap();
        let peer = client.connect((address, ServerKey::dev().public())).unwrap();
        let client = Arc::new(Mutex::new(BufferedClient::new(client, peer)));
        Entry { generation: 0, owner: std::thread::current().id(), client }
    }

    #[test]
    fn a_slot_is_reused_with_another_handle() {
        let mut table = Table { slots: Vec::new(), reserved_count: 0, inserted_count: 0 };
        let first = table.insert(entry());
        assert_eq!(table.slot(first), Some(0));
        table.slots[0] = None;
        assert_eq!(table.slot(first), None);
        let second = table.insert(entry());
        assert_eq!((table.slot(first), table.slot(second)), (None, Some(0)));
        assert_ne!(first, second);
    }

    #[test]
    fn numbers_that_were_never_issued_are_not_handles() {
        let mut table = Table { slots: Vec::new(), reserved_count: 0, inserted_count: 0 };
        let handle = table.insert(entry()).0;
        let address = std::ptr::from_ref(&handle).addr() as u64;
        for invalid in
            [0, 1, 2, 1 << 32, u64::MAX, handle + 1, handle ^ (1 << 32), handle & !0xffff_ffff, address]
        {
            assert_eq!(table.slot(DrumfireClient(invalid)), None, "{invalid:#x}");
        }
    }

    #[test]
    fn a_full_table_accepts_a_client_after_one_leaves() {
        let mut table = Table { slots: Vec::new(), reserved_count: 0, inserted_count: u32::MAX - 1 };
        let shared = entry();
        let another = || Entry { client: Arc::clone(&shared.client), ..shared };
        let connect = |table: &mut Table| {
            assert!(table.reserve());
            let handle = table.insert(another());
            table.reserved_count -= 1;
            handle
        };
        let handles: Vec<_> = (1..DRUMFIRE_CLIENTS_MAX).map(|_| connect(&mut table)).collect();
        assert!(table.reserve() && !table.reserve(), "the last place is promised to a client that connects");
        table.reserved_count = 0;
        connect(&mut table);
        assert!(!table.reserve());
        table.slots[3] = None;
        assert_eq!(connect(&mut table).0 & 0xffff_ffff, 4);
        assert!(handles.iter().all(|handle| handle.0 != 0));
    }
}
