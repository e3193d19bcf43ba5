//! Ending all sessions of a server that may have been copied.

use super::Server;
use crate::base::entropy::EntropyError;

impl Server {
    /// Ends all sessions because there may be a copy of this process: the machine was resumed from a snapshot that another
    /// one was resumed from too, or the process was forked. Two copies with the same keys seal different packets under the same
    /// nonces, which gives their contents away and lets packets be forged.
    ///
    /// Call it in each copy before it sends or receives again, or before the snapshot is made, which is safer: what copies seal
    /// between the resume and the call cannot be taken back. When it returns, all keys of sessions and handshakes are gone at all
    /// workers, and randomness was drawn anew. Every connection ends with
    /// [`CloseReason::KeysInvalidated`](crate::CloseReason::KeysInvalidated), without a word to its peer, for a word would need the
    /// keys; what was on its way is lost. A client hears of it with its next packet
    /// ([`CloseReason::Reset`](crate::CloseReason::Reset)), and comes back by itself where it has
    /// [`Reconnect::Within`](crate::Reconnect::Within). The server's key and those of tokens stay: they seal nothing that counts.
    ///
    /// It waits for the pass that each worker is in; the events come with the next polls.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
    /// # let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
    /// # let mut client = Client::connect(server.local_addr(), ServerKey::dev().public(), &config)?;
    /// # let before = loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Connected { peer, .. }) = server.next_event() { break peer }
    /// # };
    /// // The orchestrator says that this machine was resumed from a snapshot.
    /// server.invalidate_all_keys()?;
    /// let ended = loop {
    ///     server.poll(Duration::from_millis(1));
    ///     if let Some(event) = server.next_event() { break event }
    /// };
    /// let Event::Disconnected { closed, .. } = ended else { panic!("{ended:?}") };
    /// assert_eq!(closed.reason, CloseReason::KeysInvalidated);
    ///
    /// // The client comes back when it next says something.
    /// client.send(Message::reliable_ordered(ChannelId(0), "still there?"))?;
    /// loop {
    ///     client.poll(Duration::from_millis(1));
    ///     client.events().count();
    ///     server.poll(Duration::ZERO);
    ///     if let Some(Event::Connected { peer, .. }) = server.next_event() {
    ///         assert_ne!(peer, before);
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`EntropyError`] when the system has no randomness. Nothing has changed then, and this copy must not go on: end the process
    /// without sending anything, by [`std::process::abort`].
    pub fn invalidate_all_keys(&mut self) -> Result<(), EntropyError> {
        // What was sent and not flushed goes with its connections: flushed first it might still leave under their keys.
        self.core.invalidate_all_keys()
    }
}
