//! The server's verbs about who may come in.

use std::time::Duration;

use drumfire_proto::{CloseError, PeerId};

use super::Server;
use crate::admission::bans::{Ban, BanError, CloseAndBanError};
use crate::admission::gate::Gate;

impl Server {
    /// The switch for new players, to keep and to use from any thread.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.core.admission.gate().clone()
    }

    /// Lets nobody in who is meant, from now on and for so long; `Duration::MAX` is for ever. They are told
    /// [`RefuseReason::Banned`](crate::error::RefuseReason::Banned), and for how long where that is 18 hours at most. It holds
    /// for resume tokens too, and for who is being let in at this moment: that one is connected and at once closed.
    /// Who is connected stays, see [`Server::close_and_ban`]. A ban of the same again takes the place of the first.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::admission::*;
    /// # use drumfire::error::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config)?;
    /// let home = Ban::Prefix { address: "127.0.0.0".parse()?, bits: 8 };
    /// server.ban(home, Duration::from_secs(3_600))?;
    /// # let mut client = Client::connect_dev(server.local_addr())?;
    /// let error = loop {
    ///     client.poll(Duration::from_millis(1));
    ///     # server.poll(Duration::ZERO);
    ///     if let Some(Event::ConnectFailed { error, .. }) = client.next_event() { break error }
    /// };
    /// assert!(matches!(error, ConnectError::Refused(refusal) if refusal.reason == RefuseReason::Banned));
    /// assert!(server.unban(home) && server.bans().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BanError`]: there are [`BANS_MAX`](crate::admission::BANS_MAX) bans, or the prefix does not fit its address.
    pub fn ban(&mut self, ban: Ban, duration: Duration) -> Result<(), BanError> {
        let now = self.time();
        self.core.admission.bans().add(now, ban, duration)
    }

    /// Lifts a ban; answers whether there was one.
    pub fn unban(&mut self, ban: Ban) -> bool {
        let now = self.time();
        self.core.admission.bans().remove(now, ban)
    }

    /// Everybody who is banned, and for how long from now on.
    pub fn bans(&mut self) -> Vec<(Ban, Duration)> {
        let now = self.time();
        self.core.admission.bans().all(now)
    }

    /// [`Server::ban`] and [`Server::close`]: bans a peer at once, by its player or, in open access, by the address from
    /// which it connected, and closes it with the next `flush` or `poll`. Answers the ban.
    ///
    /// # Errors
    ///
    /// [`CloseAndBanError`]: the peer is gone, the text is too long, or there are too many bans; nothing has happened
    /// then.
    pub fn close_and_ban(
        &mut self,
        peer: PeerId,
        code: u32,
        text: &str,
        duration: Duration,
    ) -> Result<Ban, CloseAndBanError> {
        let ban = self.front.ban_of(peer).ok_or(CloseAndBanError::Close(CloseError::UnknownPeer))?;
        self.front.check_close(peer, text).map_err(CloseAndBanError::Close)?;
        self.ban(ban, duration).map_err(CloseAndBanError::Ban)?;
        self.close(peer, code, text).map_err(CloseAndBanError::Close)?;
        Ok(ban)
    }
}
