//! Chooses the worker that owns a new connection. All workers of a server share one table and look up each Hello in it.
//!
//! Packets of established connections need no lookup, because their connection ids select the worker. The limits on connections
//! and used tokens bound the size of the table. The registry asks `AdmissionControl` whether a client may connect.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drumfire_proto::{
    Claim, ClaimError, ConfirmDecision, DropReason, HelloHash, Now, Placement, PlacementDecision,
    ReplacedConnection, UsedTokens,
};

use super::AdmissionControl;
use super::sources::SourceLimits;

/// The connections of all workers of a server, and the admission control for new ones.
#[derive(Debug)]
pub struct ConnectionRegistry {
    table: Mutex<RegistryTable>,
    admission: Arc<AdmissionControl>,
}

/// The state that the workers share.
#[derive(Debug)]
struct RegistryTable {
    /// All connections by the Hello that opened them, including half-open ones and Hellos that the application is deciding about.
    entries: HashMap<HelloHash, RegistryEntry>,
    /// The number of connections of each worker, by index. Promised places count, undecided Hellos do not.
    loads: Vec<u32>,
    /// The maximum number of connections of one worker.
    max_per_worker: u32,
    /// The maximum number of entries for all workers together.
    max_total: u32,
    tokens: UsedTokens,
    sources: SourceLimits,
}

/// A connection in the table.
#[derive(Debug)]
struct RegistryEntry {
    /// The worker that the connection is counted for. It owns the connection, or will when it takes the Hello that `holder` forwards to
    /// it. `None` while `holder` asks the application.
    worker: Option<u16>,
    /// The worker that may release the place. The worker that a place is promised to must take it first.
    holder: u16,
    /// The source address of its Hello.
    address: IpAddr,
    /// Whether the client has proved that it receives datagrams at `address`.
    is_address_proved: bool,
}

impl RegistryEntry {
    /// Assigns the entry to `worker`. Returns the result for the worker `here`, which asks.
    fn place(&mut self, worker: u16, here: u16) -> PlacementDecision {
        if worker == here {
            (self.worker, self.holder) = (Some(here), here);
            return PlacementDecision::Local;
        }
        // Forwarding changes only an undecided entry: a worker that took its place keeps it, and the first promise stays valid.
        if self.worker.is_none() {
            (self.worker, self.holder) = (Some(worker), here);
        }
        PlacementDecision::Forward(worker)
    }

    /// Removes the entry from the counts of its worker and its source.
    fn leave(&self, loads: &mut [u32], sources: &mut SourceLimits) {
        sources.remove(self.address, self.is_address_proved);
        let load = self.worker.and_then(|worker| loads.get_mut(usize::from(worker)));
        if let Some(load) = load {
            *load = load.saturating_sub(1);
        }
    }
}

impl ConnectionRegistry {
    /// Creates a registry for `workers` workers with at most `max_per_worker` connections each. It uses the default admission control.
    pub fn new(workers: u16, max_per_worker: u32) -> Arc<Self> {
        Self::with_admission(
            Arc::default(),
            workers,
            max_per_worker,
            max_per_worker.saturating_mul(workers.into()),
        )
    }

    /// Creates a registry that uses `admission`, with at most `max_total` connections for all workers together.
    pub(crate) fn with_admission(
        admission: Arc<AdmissionControl>,
        workers: u16,
        max_per_worker: u32,
        max_total: u32,
    ) -> Arc<Self> {
        let loads = vec![0; usize::from(workers)];
        let tokens = UsedTokens::new(max_total);
        let sources = admission.sources();
        let table = Mutex::new(RegistryTable {
            entries: HashMap::new(),
            loads,
            max_per_worker,
            max_total,
            tokens,
            sources,
        });
        Arc::new(Self { table, admission })
    }

    /// Returns the view of the worker with this index.
    pub fn of_worker(self: &Arc<Self>, index: u16) -> RegistryView {
        RegistryView { registry: Arc::clone(self), index }
    }

    /// Removes all connections of a worker that restarts or ends, and all Hellos that are on their way from it or to it.
    pub fn forget(&self, index: u16) {
        let mut table = self.table();
        let RegistryTable { entries, tokens, sources, loads, .. } = &mut *table;
        // A restart also drops the Hellos that the worker has forwarded and that no other worker has taken.
        let depends = |entry: &RegistryEntry| entry.holder == index || entry.worker == Some(index);
        for (hello, entry) in entries.extract_if(|_, entry| depends(entry)) {
            tokens.release(hello);
            entry.leave(loads, sources);
        }
    }

    fn table(&self) -> MutexGuard<'_, RegistryTable> {
        // A panic under this lock leaves at worst a reserved place that no connection uses, so a poisoned lock can be used.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The placement of one worker, which uses the table of all workers.
#[derive(Clone, Debug)]
pub struct RegistryView {
    registry: Arc<ConnectionRegistry>,
    index: u16,
}

impl Placement for RegistryView {
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> PlacementDecision {
        let ConnectionRegistry { admission, .. } = &*self.registry;
        if let Err(answer) = self.registry.table().begin(now, claim, self.index, admission) {
            return answer;
        }
        // The hook can take long, so the table is not locked while it runs. Other workers that receive the same Hello in that
        // time get `Undecided`.
        let decided = admission.call_hook(claim);
        let mut table = self.registry.table();
        let placed = match decided {
            Ok(key) => table.reserve(now, claim.hello, key, self.index, admission),
            Err(rejection) => Err(PlacementDecision::Rejected(rejection)),
        };
        placed.unwrap_or_else(|refused| {
            table.remove(claim.hello);
            refused
        })
    }

    fn take(&mut self, hello: HelloHash) -> bool {
        let mut table = self.registry.table();
        let is_ours = |entry: &&mut RegistryEntry| entry.worker == Some(self.index);
        let Some(entry) = table.entries.get_mut(&hello).filter(is_ours) else { return false };
        entry.holder = self.index;
        true
    }

    fn set_limits(&mut self, connections: u32, total: u32) {
        // Every worker sets the same limits, so the order of their calls has no effect.
        let mut table = self.registry.table();
        (table.max_per_worker, table.max_total) = (connections, total);
        table.tokens.set_connections(total);
    }

    fn confirm(&mut self, now: Now, hello: HelloHash) -> ConfirmDecision {
        let mut table = self.registry.table();
        table.prove(hello);
        if table.is_unwelcome(now, hello, &self.registry.admission) {
            // The token counts as used although the connection is closed.
            table.tokens.confirm(now.wall, hello);
            return ConfirmDecision::Rejected;
        }
        let Some(hello) = table.tokens.confirm(now.wall, hello) else { return ConfirmDecision::Confirmed };
        let shard = table.entries.get(&hello).and_then(|entry| entry.worker);
        shard.map_or(ConfirmDecision::Confirmed, |shard| {
            ConfirmDecision::Replaces(ReplacedConnection { shard, hello })
        })
    }

    fn release(&mut self, hello: HelloHash) {
        let mut table = self.registry.table();
        // The Hello may have been repeated and placed on another worker since this worker released it.
        if table.entries.get(&hello).is_some_and(|entry| entry.holder == self.index) {
            table.remove(hello);
        }
    }
}

impl RegistryTable {
    /// Adds an undecided entry for a new Hello, before the application is asked about it.
    ///
    /// # Errors
    ///
    /// The result of the placement, if the Hello has an entry already or is refused.
    fn begin(
        &mut self,
        now: Now,
        claim: &Claim<'_>,
        here: u16,
        admission: &AdmissionControl,
    ) -> Result<(), PlacementDecision> {
        if let Some(entry) = self.entries.get_mut(&claim.hello) {
            let worker = entry.worker;
            return Err(worker.map_or(PlacementDecision::Undecided, |worker| entry.place(worker, here)));
        }
        admission.check_gate_and_bans(now, claim).map_err(PlacementDecision::Rejected)?;
        if u32::try_from(self.entries.len()).is_ok_and(|count| count >= self.max_total) {
            return Err(admission.full());
        }
        // If no worker has room, the application is not asked, and the token stays unused.
        self.least_loaded(now, here, admission)?;
        let claimed =
            claim.token.as_ref().map_or(Ok(()), |token| self.tokens.claim(now.wall, token, claim.hello));
        claimed.map_err(|error| match error {
            ClaimError::Used => PlacementDecision::Used,
            ClaimError::Full => admission.full(),
        })?;
        let (address, is_address_proved) = (claim.address.ip(), claim.is_address_proved);
        if !self.sources.add(address, is_address_proved) {
            self.tokens.release(claim.hello);
            return Err(PlacementDecision::Rejected(admission.try_later(DropReason::SourceFull)));
        }
        let entry = RegistryEntry { worker: None, holder: here, address, is_address_proved };
        self.entries.insert(claim.hello, entry);
        Ok(())
    }

    /// Reserves a place for a Hello that the application accepted: on the worker of `key`, or without a key on the least loaded
    /// one.
    ///
    /// # Errors
    ///
    /// The reason why no worker can take the Hello.
    fn reserve(
        &mut self,
        now: Now,
        hello: HelloHash,
        key: Option<u64>,
        here: u16,
        admission: &AdmissionControl,
    ) -> Result<PlacementDecision, PlacementDecision> {
        let worker = match key.and_then(|key| self.worker_of(key, admission)) {
            Some(worker) => self.check(now, worker, admission).map(|()| worker),
            None => self.least_loaded(now, here, admission),
        }?;
        // `forget` can remove the entry while the application decides. Then the worker has restarted, and does not use the
        // result.
        let entry = self.entries.get_mut(&hello).ok_or_else(|| admission.full())?;
        if let Some(load) = self.loads.get_mut(usize::from(worker)) {
            *load = load.saturating_add(1);
        }
        Ok(entry.place(worker, here))
    }

    /// Records that the client has proved its address, because a packet of its connection was decrypted.
    fn prove(&mut self, hello: HelloHash) {
        if let Some(entry) = self.entries.get_mut(&hello).filter(|entry| !entry.is_address_proved) {
            entry.is_address_proved = true;
            self.sources.prove(entry.address);
        }
    }

    /// Whether the client of this Hello was banned after it was admitted.
    fn is_unwelcome(&self, now: Now, hello: HelloHash, admission: &AdmissionControl) -> bool {
        let entry = self.entries.get(&hello);
        entry.is_some_and(|entry| {
            admission.is_unwelcome(now.monotonic, entry.address, self.tokens.player(hello))
        })
    }

    /// Removes the entry of a Hello and releases its token.
    fn remove(&mut self, hello: HelloHash) {
        self.tokens.release(hello);
        let Some(entry) = self.entries.remove(&hello) else { return };
        entry.leave(&mut self.loads, &mut self.sources);
    }

    /// Checks that this worker has a free place, and CPU time for another connection.
    fn check(&self, now: Now, worker: u16, admission: &AdmissionControl) -> Result<(), PlacementDecision> {
        // A worker that has ended has no connections and no load, and would be chosen for each new connection.
        if self.load(worker) >= self.max_per_worker || admission.has_ended(worker) {
            return Err(admission.full());
        }
        if !admission.has_headroom(now.monotonic, worker) {
            return Err(PlacementDecision::Rejected(admission.try_later(DropReason::Overloaded)));
        }
        Ok(())
    }

    /// Returns the worker with the fewest connections among the workers that pass [`RegistryTable::check`]. Prefers `here` to others with
    /// the same number.
    fn least_loaded(
        &self,
        now: Now,
        here: u16,
        admission: &AdmissionControl,
    ) -> Result<u16, PlacementDecision> {
        let (mut least, mut refused) = (None, admission.full());
        for (worker, load) in (0..).zip(&self.loads) {
            match self.check(now, worker, admission) {
                Ok(()) => {
                    let candidate = (*load, worker != here, worker);
                    least = Some(least.map_or(candidate, |least| candidate.min(least)));
                }
                // Overload is the more specific reason: a worker has a free place, but no CPU time.
                Err(why @ PlacementDecision::Rejected(_)) => refused = why,
                Err(_) => {}
            }
        }
        least.map(|(_, _, worker)| worker).ok_or(refused)
    }

    /// Returns the worker for all players with this key. The keys of a worker that has ended belong to the next one.
    fn worker_of(&self, key: u64, admission: &AdmissionControl) -> Option<u16> {
        let count = u64::try_from(self.loads.len()).ok()?;
        // Games often number rooms consecutively or in steps. The multiplication (Fibonacci hashing) spreads such keys evenly.
        let scattered = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = scattered.checked_rem(count)?;
        let mut workers = (first..count).chain(0..first).filter_map(|worker| u16::try_from(worker).ok());
        workers.find(|worker| !admission.has_ended(*worker))
    }

    /// Returns the number of connections of this worker, or `u32::MAX` if there is no such worker.
    fn load(&self, worker: u16) -> u32 {
        self.loads.get(usize::from(worker)).copied().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionConfig;
    use crate::admission::bans::Ban;
    use crate::admission::hook::{AcceptHook, Applicant, Placement as WantedPlacement, Verdict};
    use crate::admission::load::LoadMeter;
    use crate::admission::load::tests::passes;
    use drumfire_proto::limits::FULL_RETRY_AFTER;
    use drumfire_proto::{
        Moment, PlacementKey, PlayerId, RefuseReason, Rejection, TokenClaim, TokenId, TokenKind,
    };
    use drumfire_tries::tries;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    const NOW: Now = Now { monotonic: Moment::ORIGIN, wall: Duration::ZERO };

    /// The result when no worker has a free place.
    const FULL: PlacementDecision = PlacementDecision::Full { retry_after: Some(FULL_RETRY_AFTER) };

    fn hash(number: u32) -> HelloHash {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        HelloHash(bytes)
    }

    /// Returns the claim of a Hello without a token.
    fn without_token(number: u32) -> Claim<'static> {
        let address = SocketAddr::from(([192, 0, 2, 1], 5_000));
        Claim {
            hello: hash(number),
            address,
            is_address_proved: true,
            key: None,
            token: None,
            user_data: &[],
        }
    }

    /// Returns the worker that a Hello was placed on by the worker `here`.
    fn owner_of(placed: PlacementDecision, here: u16) -> u16 {
        match placed {
            PlacementDecision::Local => here,
            PlacementDecision::Forward(owner) => owner,
            placed => panic!("{placed:?}"),
        }
    }

    #[test]
    fn the_same_hello_has_the_same_owner_wherever_it_arrives() {
        let registry = ConnectionRegistry::new(4, 100);
        for number in 0..100 {
            let first = u16::try_from(number % 4).unwrap();
            let owner = owner_of(registry.of_worker(first).place(NOW, &without_token(number)), first);
            for here in 0..4 {
                let again = registry.of_worker(here).place(NOW, &without_token(number));
                assert_eq!(owner_of(again, here), owner);
            }
        }
        assert_eq!(registry.table().loads, [25; 4]);
    }

    #[test]
    fn a_hello_stays_where_it_came_unless_another_worker_has_less() {
        let registry = ConnectionRegistry::new(3, 100);
        assert_eq!(registry.of_worker(2).place(NOW, &without_token(1)), PlacementDecision::Local);
        assert_eq!(registry.of_worker(2).place(NOW, &without_token(2)), PlacementDecision::Forward(0));
        assert_eq!(registry.of_worker(2).place(NOW, &without_token(3)), PlacementDecision::Forward(1));
        assert_eq!(registry.of_worker(2).place(NOW, &without_token(4)), PlacementDecision::Local);
    }

    #[test]
    fn a_released_place_is_free_again_and_only_once() {
        let registry = ConnectionRegistry::new(2, 1);
        let mut here = registry.of_worker(0);
        assert_eq!(here.place(NOW, &without_token(1)), PlacementDecision::Local);
        assert_eq!(here.place(NOW, &without_token(2)), PlacementDecision::Forward(1));
        assert_eq!(here.place(NOW, &without_token(3)), FULL);
        assert!(registry.of_worker(1).take(hash(2)));
        registry.of_worker(1).release(hash(2));
        registry.of_worker(1).release(hash(2));
        assert_eq!(here.place(NOW, &without_token(3)), PlacementDecision::Forward(1));
        assert_eq!(here.place(NOW, &without_token(4)), FULL);
        assert_eq!(registry.table().entries.len(), 2);
    }

    #[test]
    fn a_worker_releases_only_what_it_owns() {
        let registry = ConnectionRegistry::new(2, 10);
        let (mut first, mut second) = (registry.of_worker(0), registry.of_worker(1));
        let claim = with_token(1, None);
        assert_eq!(first.place(NOW, &claim), PlacementDecision::Local);
        first.release(hash(1));
        // The client repeats the Hello, which now arrives at the other worker.
        assert_eq!(second.place(NOW, &claim), PlacementDecision::Local);
        first.release(hash(1));
        assert_eq!(second.confirm(NOW, hash(1)), ConfirmDecision::Confirmed);
        let again = Claim { hello: hash(2), ..claim };
        assert_eq!(first.place(NOW, &again), PlacementDecision::Used, "a token opens one session");
        assert_eq!(registry.table().loads, [0, 1]);
    }

    #[test]
    fn a_promised_place_is_released_by_the_worker_that_promised_it() {
        let registry = ConnectionRegistry::new(2, 1);
        let (mut first, mut second) = (registry.of_worker(0), registry.of_worker(1));
        assert_eq!(first.place(NOW, &without_token(1)), PlacementDecision::Local);
        for is_taken in [false, true] {
            assert_eq!(first.place(NOW, &without_token(2)), PlacementDecision::Forward(1));
            assert!(!is_taken || second.take(hash(2)));
            first.release(hash(2));
            assert_eq!(registry.table().loads, [1, u32::from(is_taken)]);
        }
    }

    #[test]
    fn a_worker_that_restarts_owns_no_connection() {
        let registry = ConnectionRegistry::new(2, 4);
        for number in 0..8 {
            registry.of_worker(0).place(NOW, &without_token(number));
        }
        registry.forget(1);
        assert_eq!(registry.table().loads, [4, 0]);
        assert_eq!(registry.of_worker(0).place(NOW, &without_token(9)), PlacementDecision::Forward(1));
    }

    #[test]
    fn a_restart_drops_forwarded_hellos_from_and_to_the_worker() {
        for restarted in 0..2 {
            let registry = ConnectionRegistry::new(2, 1);
            assert_eq!(registry.of_worker(0).place(NOW, &without_token(1)), PlacementDecision::Local);
            assert_eq!(registry.of_worker(0).place(NOW, &with_token(2, None)), PlacementDecision::Forward(1));
            registry.forget(restarted);
            let is_kept = restarted == 1;
            assert_eq!(registry.table().loads, [u32::from(is_kept), 0]);
            assert!(!registry.of_worker(1).take(hash(2)));
            // The token is free again for another Hello.
            let again = Claim { hello: hash(3), ..with_token(2, None) };
            assert_eq!(registry.of_worker(1).place(NOW, &again), PlacementDecision::Local);
        }
    }

    #[test]
    fn a_taken_hello_outlives_the_worker_that_forwarded_it() {
        let registry = ConnectionRegistry::new(3, 1);
        assert_eq!(registry.of_worker(0).place(NOW, &without_token(1)), PlacementDecision::Local);
        let (forwarded, repeated) = (2, 3);
        assert_eq!(
            registry.of_worker(0).place(NOW, &without_token(forwarded)),
            PlacementDecision::Forward(1)
        );
        assert!(!registry.of_worker(2).take(hash(forwarded)), "it is promised to another worker");
        assert!(registry.of_worker(1).take(hash(forwarded)));
        assert_eq!(registry.of_worker(0).place(NOW, &without_token(repeated)), PlacementDecision::Forward(2));
        assert_eq!(registry.of_worker(2).place(NOW, &without_token(repeated)), PlacementDecision::Local);
        // A repeated Hello that arrives at another worker does not move the connection.
        assert_eq!(
            registry.of_worker(0).place(NOW, &without_token(forwarded)),
            PlacementDecision::Forward(1)
        );
        registry.forget(0);
        assert_eq!(registry.table().loads, [0, 1, 1]);
        for (worker, number) in [(1, forwarded), (2, repeated)] {
            assert_eq!(
                registry.of_worker(worker).place(NOW, &without_token(number)),
                PlacementDecision::Local
            );
            registry.of_worker(worker).release(hash(number));
        }
        assert_eq!(registry.table().loads, [0, 0, 0]);
    }

    fn with_token(number: u32, key: Option<u64>) -> Claim<'static> {
        let token = TokenClaim {
            kind: TokenKind::Connect,
            token: TokenId(hash(number).0),
            player: PlayerId(1),
            issued_at: Duration::from_secs(40),
            expires_at: Duration::from_secs(100),
        };
        Claim { key: key.map(PlacementKey), token: Some(token), ..without_token(number) }
    }

    #[test]
    fn players_with_the_same_key_share_a_worker_while_it_has_room() {
        let registry = ConnectionRegistry::new(4, 2);
        let placed = |number: u32, key| {
            let claim = Claim { key: Some(PlacementKey(key)), ..without_token(number) };
            registry.of_worker(0).place(NOW, &claim)
        };
        let first = placed(1, 77);
        assert_eq!(placed(2, 77), first);
        assert_eq!(placed(3, 77), FULL);
        let spread: std::collections::HashSet<_> =
            (0..64).map(|key| registry.table().worker_of(key, &registry.admission).unwrap()).collect();
        assert_eq!(spread.len(), 4);
    }

    /// Presents every token on every worker, each time with another Hello. Returns the accepted pairs of token and Hello, sorted.
    fn race(registry: &Arc<ConnectionRegistry>, tokens: u32) -> Vec<(u32, HelloHash)> {
        let barrier = std::sync::Barrier::new(4);
        let mut taken = std::thread::scope(|scope| {
            let threads = (0..4).map(|worker| {
                let (mut placement, barrier) = (registry.of_worker(worker), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let tries = (0..tokens).map(|token| (token, hash(token << 8 | u32::from(worker))));
                    let is_taken = |(token, hello): &(u32, HelloHash)| {
                        let claim = Claim { hello: *hello, ..with_token(*token, None) };
                        placement.place(NOW, &claim) != PlacementDecision::Used
                    };
                    tries.filter(is_taken).collect::<Vec<_>>()
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        taken.sort_unstable();
        taken
    }

    #[test]
    fn each_token_opens_one_session_despite_races_and_replays() {
        const TOKENS: u32 = 25_000;
        let registry = ConnectionRegistry::new(4, TOKENS);
        let taken = race(&registry, TOKENS);
        assert!(
            taken.iter().map(|(token, _)| *token).eq(0..TOKENS),
            "each token opens one session in 100,000 tries"
        );
        for (_, hello) in &taken {
            registry.of_worker(0).confirm(NOW, *hello);
        }
        // The Hello that opened a session still finds it, and all other Hellos are refused.
        assert_eq!(race(&registry, TOKENS), taken, "each session belongs to its first Hello");
        assert_eq!(registry.table().entries.len(), taken.len());
        for (_, hello) in &taken {
            (0..4).for_each(|worker| registry.of_worker(worker).release(*hello));
        }
        assert!(race(&registry, TOKENS).is_empty(), "tokens of closed sessions stay used");
        assert_eq!(registry.table().entries.len(), 0);
    }

    /// Returns a claim with a token of this player. Tokens with the same number have the same id.
    fn token_of(player: u128, kind: TokenKind, number: u32, now: Now) -> Claim<'static> {
        let (token, player) = (TokenId(hash(number).0), PlayerId(player));
        let expires_at = now.wall + Duration::from_secs(600);
        let token = TokenClaim { kind, token, player, issued_at: now.wall, expires_at };
        Claim { token: Some(token), ..without_token(0) }
    }

    #[test]
    fn one_player_that_reconnects_fills_no_table() {
        const OTHERS: u32 = 1_000_000;
        for kind in [TokenKind::Resume, TokenKind::Connect] {
            let registry = ConnectionRegistry::new(1, drumfire_proto::limits::CONNECTIONS);
            let mut here = registry.of_worker(0);
            let mut now = NOW;
            let waiting = token_of(2, TokenKind::Resume, OTHERS, now);
            // 67 sessions per second for 590 s, each with the resume token of the session before, or with a new connect token.
            for number in 1..=40_000 {
                let claim = Claim { hello: hash(number), ..token_of(1, kind, number - 1, now) };
                let placed = here.place(now, &claim);
                // A player can use only a few of the connect tokens that were issued in the same second.
                let is_used = kind == TokenKind::Connect && placed == PlacementDecision::Used;
                assert!(placed == PlacementDecision::Local || is_used, "{number}: {placed:?}");
                here.confirm(now, hash(number));
                here.release(hash(number - 1));
                now.wall += Duration::from_micros(14_750);
            }
            let fresh = token_of(3, TokenKind::Connect, OTHERS + 1, now);
            for (number, claim) in [(OTHERS + 2, waiting), (OTHERS + 3, fresh)] {
                assert_eq!(
                    here.place(now, &Claim { hello: hash(number), ..claim }),
                    PlacementDecision::Local
                );
            }
            assert_eq!(registry.table().tokens.counts().1, 1, "the player has one record");
        }
    }

    #[test]
    fn all_players_of_a_full_server_reconnect_after_a_restart() {
        const PLAYERS: u32 = drumfire_proto::limits::CONNECTIONS;
        let registry = ConnectionRegistry::new(1, PLAYERS);
        let mut here = registry.of_worker(0);
        for number in 0..PLAYERS {
            // The process before the restart issued these tokens.
            let token = token_of(number.into(), TokenKind::Resume, number, NOW);
            let claim = Claim { hello: hash(PLAYERS + number), ..token };
            assert_eq!(here.place(NOW, &claim), PlacementDecision::Local, "{number}");
            here.confirm(NOW, hash(PLAYERS + number));
        }
        // The same number of other players can connect while the registry remembers these tokens.
        for number in 0..PLAYERS {
            here.release(hash(PLAYERS + number));
            let token = token_of((PLAYERS + number).into(), TokenKind::Connect, 3 * PLAYERS + number, NOW);
            let claim = Claim { hello: hash(2 * PLAYERS + number), ..token };
            assert_eq!(here.place(NOW, &claim), PlacementDecision::Local, "{number}");
            here.confirm(NOW, hash(2 * PLAYERS + number));
        }
    }

    #[test]
    fn an_older_session_is_closed_on_the_worker_that_owns_it() {
        let registry = ConnectionRegistry::new(2, 100);
        let mut here = registry.of_worker(0);
        assert_eq!(here.place(NOW, &with_token(1, None)), PlacementDecision::Local);
        assert_eq!(here.confirm(NOW, hash(1)), ConfirmDecision::Confirmed);
        assert_eq!(here.place(NOW, &with_token(2, None)), PlacementDecision::Forward(1));
        assert_eq!(
            registry.of_worker(1).confirm(NOW, hash(2)),
            ConfirmDecision::Replaces(ReplacedConnection { shard: 0, hello: hash(1) })
        );
        here.release(hash(1));
        registry.forget(1);
        assert_eq!(
            here.place(NOW, &with_token(2, None)),
            PlacementDecision::Used,
            "a used token stays used after a restart"
        );
    }

    /// Returns a registry that asks `hook`, and the number of its calls.
    fn registry_with_hook(
        workers: u16,
        hook: impl Fn(&Applicant<'_>) -> Verdict + Send + Sync + 'static,
    ) -> (Arc<ConnectionRegistry>, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&count);
        let config = AdmissionConfig::default().accept(AcceptHook::new(move |applicant| {
            counter.fetch_add(1, Ordering::Relaxed);
            hook(applicant)
        }));
        (
            ConnectionRegistry::with_admission(AdmissionControl::new(&config, Vec::new()), workers, 100, 100),
            count,
        )
    }

    #[test]
    fn the_hook_is_called_once_per_hello_and_chooses_the_worker() {
        let (registry, count) = registry_with_hook(4, |applicant| match applicant.placement_key {
            Some(_) => Verdict::AcceptAt(WantedPlacement::LeastLoaded),
            None => Verdict::AcceptAt(WantedPlacement::Key(applicant.address.port().into())),
        });
        for (number, port) in [(1, 5_000), (2, 5_000), (3, 6_001)] {
            let claim = Claim { address: SocketAddr::from(([192, 0, 2, 1], port)), ..without_token(number) };
            let worker = owner_of(registry.of_worker(0).place(NOW, &claim), 0);
            assert_eq!(Some(worker), registry.table().worker_of(port.into(), &registry.admission));
            for here in 0..4 {
                assert_eq!(
                    owner_of(registry.of_worker(here).place(NOW, &claim), here),
                    worker,
                    "a repeated Hello stays with its worker"
                );
            }
            assert_eq!(count.load(Ordering::Relaxed), number);
        }
        let keyed = Claim { key: Some(PlacementKey(5_000)), ..without_token(4) };
        let busy = registry.table().worker_of(5_000, &registry.admission);
        assert_ne!(
            Some(owner_of(registry.of_worker(0).place(NOW, &keyed), 0)),
            busy,
            "the key of the token is ignored"
        );
    }

    #[test]
    fn a_declined_hello_holds_no_place_and_can_be_repeated() {
        let is_panicking = Arc::new(AtomicBool::new(false));
        let panics = Arc::clone(&is_panicking);
        let (registry, count) = registry_with_hook(1, move |_| {
            assert!(!panics.load(Ordering::Relaxed), "the hook panics on purpose");
            Verdict::Redirect { address: SocketAddr::from(([192, 0, 2, 9], 7_777)), retry_after: None }
        });
        let mut here = registry.of_worker(0);
        let there = Rejection {
            counted_as: DropReason::Declined,
            reason: RefuseReason::Redirect,
            retry_after: None,
            address: Some(SocketAddr::from(([192, 0, 2, 9], 7_777))),
        };
        let later = Rejection {
            counted_as: DropReason::AcceptPanicked,
            reason: RefuseReason::Full,
            retry_after: Some(FULL_RETRY_AFTER),
            address: None,
        };
        for (is_broken, rejection) in [(false, there), (true, later)] {
            is_panicking.store(is_broken, Ordering::Relaxed);
            for number in 1..=2 {
                let claim = Claim { hello: hash(number), ..with_token(1, None) };
                assert_eq!(
                    here.place(NOW, &claim),
                    PlacementDecision::Rejected(rejection),
                    "a declined Hello does not use the token"
                );
            }
        }
        assert_eq!(count.load(Ordering::Relaxed), 4);
        let table = registry.table();
        assert_eq!((table.entries.len(), table.tokens.counts(), &table.loads[..]), (0, (0, 0), &[0][..]));
    }

    #[test]
    fn an_undecided_hello_blocks_no_other_hello() {
        let other: Arc<OnceLock<RegistryView>> = Arc::default();
        let seen = Arc::downgrade(&other);
        let (registry, count) = registry_with_hook(2, move |applicant| {
            if applicant.address.port() == 1 {
                // Another worker receives the same Hello, and a different one.
                let other = seen.upgrade().expect("the registry outlives its workers");
                let mut other = other.get().expect("the test sets the other worker first").clone();
                let same = Claim { address: applicant.address, ..without_token(1) };
                assert_eq!(other.place(NOW, &same), PlacementDecision::Undecided);
                assert_eq!(other.place(NOW, &without_token(2)), PlacementDecision::Local);
            }
            Verdict::Accept
        });
        assert!(other.set(registry.of_worker(1)).is_ok());
        let claim = Claim { address: SocketAddr::from(([192, 0, 2, 1], 1)), ..without_token(1) };
        assert_eq!(registry.of_worker(0).place(NOW, &claim), PlacementDecision::Local);
        assert_eq!((count.load(Ordering::Relaxed), &registry.table().loads[..]), (2, &[1, 1][..]));
    }

    #[test]
    fn the_hook_is_not_called_for_a_full_server_or_a_used_token() {
        let (registry, count) = registry_with_hook(1, |_| Verdict::Accept);
        let mut here = registry.of_worker(0);
        assert_eq!(here.place(NOW, &with_token(1, None)), PlacementDecision::Local);
        assert_eq!(
            here.place(NOW, &Claim { hello: hash(2), ..with_token(1, None) }),
            PlacementDecision::Used
        );
        registry.table().max_per_worker = 1;
        assert_eq!(here.place(NOW, &without_token(3)), FULL);
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_limit_of_the_server_bounds_the_sum_over_all_workers() {
        let registry = ConnectionRegistry::with_admission(Arc::default(), 3, 4, 10);
        let placed = (0..12).map(|number| registry.of_worker(0).place(NOW, &without_token(number)));
        assert_eq!(placed.filter(|placed| *placed == FULL).count(), 2);
    }

    #[test]
    fn a_ban_refuses_all_tokens_and_half_open_connections() {
        let admission = AdmissionControl::new(&AdmissionConfig::default(), Vec::new());
        let registry = ConnectionRegistry::with_admission(Arc::clone(&admission), 1, 10, 10);
        let mut here = registry.of_worker(0);
        assert_eq!(here.place(NOW, &with_token(1, None)), PlacementDecision::Local);
        assert_eq!(here.place(NOW, &without_token(2)), PlacementDecision::Local);
        let day = Duration::from_secs(86_400);
        admission.bans().add(NOW.monotonic, Ban::Player(PlayerId(1)), day).unwrap();
        let banned = Rejection {
            counted_as: DropReason::Banned,
            reason: RefuseReason::Banned,
            retry_after: None,
            address: None,
        };
        assert_eq!(
            here.place(NOW, &with_token(3, None)),
            PlacementDecision::Rejected(banned),
            "the message cannot express a day"
        );
        assert_eq!(
            here.place(NOW, &with_token(1, None)),
            PlacementDecision::Local,
            "a repeated Hello finds its connection"
        );
        let later = Now { monotonic: NOW.monotonic.after(day / 2), wall: NOW.wall };
        let rest = Rejection { retry_after: Some(day / 2), ..banned };
        assert_eq!(here.place(later, &with_token(3, None)), PlacementDecision::Rejected(rest));
        assert_eq!(here.confirm(NOW, hash(1)), ConfirmDecision::Rejected);
        assert_eq!(here.confirm(NOW, hash(2)), ConfirmDecision::Confirmed);
        here.release(hash(1));
        admission.bans().remove(NOW.monotonic, Ban::Player(PlayerId(1)));
        assert_eq!(
            here.place(NOW, &with_token(1, None)),
            PlacementDecision::Used,
            "the confirmed token stays used"
        );
        assert_eq!(here.place(NOW, &with_token(3, None)), PlacementDecision::Local);
    }

    #[test]
    fn a_worker_that_has_ended_gets_no_connections_and_no_keys() {
        let loads: Vec<Arc<LoadMeter>> = (0..3).map(|_| Arc::default()).collect();
        let admission = AdmissionControl::new(&AdmissionConfig::default(), loads.clone());
        let registry = ConnectionRegistry::with_admission(admission, 3, 100, 300);
        let mut here = registry.of_worker(0);
        for number in 0..9 {
            here.place(NOW, &without_token(number));
        }
        assert_eq!(registry.table().loads, [3; 3]);
        let keys: Vec<u64> = (0..50).collect();
        let owners = || keys.iter().map(|key| registry.table().worker_of(*key, &registry.admission).unwrap());
        let before: Vec<u16> = owners().collect();
        loads[1].end();
        registry.forget(1);
        assert!((9..60).all(|number| owner_of(here.place(NOW, &without_token(number)), 0) != 1));
        for (key, (before, after)) in (0..).zip(before.iter().zip(owners().collect::<Vec<_>>())) {
            assert_eq!(after, if *before == 1 { 2 } else { *before }, "key {key}");
            let claim = Claim { key: Some(PlacementKey(key.into())), ..without_token(100 + key) };
            assert_eq!(owner_of(here.place(NOW, &claim), 0), after);
        }
        loads[0].end();
        loads[2].end();
        assert_eq!(here.place(NOW, &Claim { key: Some(PlacementKey(7)), ..without_token(200) }), FULL);
    }

    /// Returns a registry for one worker with a limit per source.
    fn limited(max_per_worker: u32, per_source: u32) -> Arc<ConnectionRegistry> {
        let config = AdmissionConfig::default().connections_per_source(per_source);
        ConnectionRegistry::with_admission(
            AdmissionControl::new(&config, Vec::new()),
            1,
            max_per_worker,
            max_per_worker,
        )
    }

    #[test]
    fn a_source_at_its_limit_gets_a_place_when_a_connection_ends() {
        let registry = limited(100, 2);
        let mut here = registry.of_worker(0);
        let from = |address: [u8; 4], number| Claim {
            address: SocketAddr::from((address, 1)),
            ..without_token(number)
        };
        let full = Rejection {
            counted_as: DropReason::SourceFull,
            reason: RefuseReason::Full,
            retry_after: Some(FULL_RETRY_AFTER),
            address: None,
        };
        let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        assert_eq!(here.place(NOW, &from(one, 1)), PlacementDecision::Local);
        assert_eq!(here.place(NOW, &from(one, 2)), PlacementDecision::Local);
        assert_eq!(here.place(NOW, &from(one, 1)), PlacementDecision::Local, "a repeated Hello counts once");
        let token = Claim { address: SocketAddr::from((one, 1)), ..with_token(3, None) };
        assert_eq!(here.place(NOW, &token), PlacementDecision::Rejected(full));
        assert_eq!(registry.table().tokens.counts(), (0, 0), "a refused Hello does not use its token");
        assert_eq!(here.place(NOW, &from(other, 4)), PlacementDecision::Local);
        here.release(hash(1));
        here.release(hash(1));
        assert_eq!(here.place(NOW, &token), PlacementDecision::Local);
        assert_eq!(here.place(NOW, &from(one, 5)), PlacementDecision::Rejected(full));
        registry.forget(0);
        assert_eq!(registry.table().sources.size().0, 0);
    }

    #[test]
    fn forged_source_addresses_use_no_places_of_the_proved_address() {
        let registry = limited(100, 2);
        let mut here = registry.of_worker(0);
        let unproved = |number| Claim { is_address_proved: false, ..without_token(number) };
        assert_eq!(here.place(NOW, &unproved(1)), PlacementDecision::Local);
        assert_eq!(here.place(NOW, &unproved(2)), PlacementDecision::Local);
        assert!(
            matches!(here.place(NOW, &unproved(3)), PlacementDecision::Rejected(_)),
            "unproved addresses have a limit of their own"
        );
        assert_eq!(here.place(NOW, &without_token(4)), PlacementDecision::Local);
        // A confirmed connection counts for the proved address from now on.
        assert_eq!(here.confirm(NOW, hash(1)), ConfirmDecision::Confirmed);
        assert!(matches!(here.place(NOW, &without_token(5)), PlacementDecision::Rejected(_)));
        for number in [1, 2, 4] {
            here.release(hash(number));
        }
        assert_eq!(registry.table().sources.size().0, 0);
    }

    #[test]
    fn the_limit_of_connections_bounds_the_memory_for_sources() {
        const MOST: usize = 1_000;
        let registry = limited(1_000, 4);
        let mut here = registry.of_worker(0);
        let from = |number: u32| {
            let bits = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834);
            let address: IpAddr = if number.is_multiple_of(2) {
                Ipv4Addr::from_bits(number.wrapping_mul(0x9e37_79b9) | 0x8000_0000).into()
            } else {
                Ipv6Addr::from_bits(bits | 0x2000 << 112).into()
            };
            Claim { address: SocketAddr::new(address, 1), ..without_token(number) }
        };
        let is_bounded = |registry: &ConnectionRegistry| {
            let table = registry.table();
            let (count, capacity) = table.sources.size();
            count <= MOST && capacity <= 4 * MOST && table.entries.capacity() <= 4 * MOST
        };
        let mut taken = 0;
        let half = tries(500_000);
        for number in 0..half {
            taken += usize::from(here.place(NOW, &from(number)) == PlacementDecision::Local);
        }
        assert!(taken == MOST && is_bounded(&registry), "{taken}");
        for number in 0..half {
            here.release(hash(number));
        }
        for number in half..2 * half {
            assert_eq!(here.place(NOW, &from(number)), PlacementDecision::Local);
            here.release(hash(number));
        }
        assert!(is_bounded(&registry));
        assert_eq!(registry.table().sources.size().0, 0);
    }

    #[test]
    fn overloaded_workers_accept_no_connections_and_keep_theirs() {
        let loads: Vec<Arc<LoadMeter>> = (0..3).map(|_| Arc::default()).collect();
        let admission = AdmissionControl::new(&AdmissionConfig::default(), loads.clone());
        let registry = ConnectionRegistry::with_admission(admission, 3, 2, 6);
        let mut here = registry.of_worker(0);
        assert_eq!(here.place(NOW, &without_token(1)), PlacementDecision::Local);
        let seconds = |seconds| Now { monotonic: NOW.monotonic.after(Duration::from_secs(seconds)), ..NOW };
        // The loads are 91 percent, 90 percent, and idle.
        passes(&loads[0], &[(0, 909), (999, 1_000)]);
        passes(&loads[1], &[(0, 900), (1_000, 1_000)]);
        let now = seconds(1);
        assert_eq!(here.place(now, &without_token(2)), PlacementDecision::Forward(1));
        assert_eq!(here.place(now, &without_token(3)), PlacementDecision::Forward(2));
        assert_eq!(
            here.place(now, &without_token(4)),
            PlacementDecision::Forward(1),
            "worker 0 has the same number of connections, but is overloaded"
        );
        assert_eq!(
            here.place(now, &without_token(1)),
            PlacementDecision::Local,
            "an existing connection stays"
        );
        let room = (0..)
            .find(|key| registry.table().worker_of(*key, &registry.admission) == Some(0))
            .map(PlacementKey);
        let overloaded = PlacementDecision::Rejected(Rejection {
            counted_as: DropReason::Overloaded,
            reason: RefuseReason::Full,
            retry_after: Some(FULL_RETRY_AFTER),
            address: None,
        });
        assert_eq!(here.place(now, &Claim { key: room, ..without_token(5) }), overloaded);
        assert_eq!(here.place(now, &without_token(6)), PlacementDecision::Forward(2));
        assert_eq!(here.place(now, &without_token(7)), overloaded, "the other workers are full");
        assert_eq!(
            here.place(seconds(4), &without_token(7)),
            PlacementDecision::Local,
            "worker 0 was idle since"
        );
        assert_eq!(here.place(seconds(4), &without_token(8)), FULL);
    }
}
