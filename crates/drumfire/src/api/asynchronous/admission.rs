//! The async server's verbs about who may come in.

use std::time::Duration;

use drumfire_proto::CloseError;

use super::connection::Connection;
use super::server::AsyncServer;
use crate::admission::bans::{Ban, BanError, CloseAndBanError};

impl AsyncServer {
    /// Lets nobody in who is meant, from now on and for so long, as [`Server::ban`](crate::Server::ban) does.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::error::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = AsyncServer::bind(config)?;
    /// # let client = AsyncClient::connect_dev(server.local_addr()).await?;
    /// let connection = server.accept().await.ok_or("the server is over")?;
    /// let ban = server.close_and_ban(&connection, 9, "no more of this", Duration::from_secs(3_600))?;
    /// assert_eq!(client.closed().await.text, "no more of this");
    ///
    /// let again = AsyncClient::connect_dev(server.local_addr()).await;
    /// let banned = Some(RefuseReason::Banned);
    /// assert!(matches!(again, Err(DialError::Connect(ConnectError::Refused(no))) if Some(no.reason) == banned));
    /// assert!(server.unban(ban) && server.bans().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BanError`]: there are [`BANS_MAX`](crate::admission::BANS_MAX) bans, or the prefix does not fit its address.
    pub fn ban(&self, ban: Ban, duration: Duration) -> Result<(), BanError> {
        let mut core = self.core();
        let now = core.time();
        core.admission.bans().add(now, ban, duration)
    }

    /// Lifts a ban; answers whether there was one.
    pub fn unban(&self, ban: Ban) -> bool {
        let mut core = self.core();
        let now = core.time();
        core.admission.bans().remove(now, ban)
    }

    /// Everybody who is banned, and for how long from now on.
    #[must_use]
    pub fn bans(&self) -> Vec<(Ban, Duration)> {
        let mut core = self.core();
        let now = core.time();
        core.admission.bans().all(now)
    }

    /// [`AsyncServer::ban`] and [`Connection::close`]: bans a peer at once, by its player or, in open access, by the address from
    /// which it connected, and closes it. Answers the ban.
    ///
    /// # Errors
    ///
    /// [`CloseAndBanError`]: the connection is over or another server's, the text is too long, or there are too many bans;
    /// nothing has happened then.
    pub fn close_and_ban(
        &self,
        connection: &Connection,
        code: u32,
        text: &str,
        duration: Duration,
    ) -> Result<Ban, CloseAndBanError> {
        if !self.is_ours(connection) {
            return Err(CloseAndBanError::Close(CloseError::UnknownPeer));
        }
        let shared = connection.shared();
        let ban = shared.check_close(text).map_err(CloseAndBanError::Close)?;
        let ban = ban.ok_or(CloseAndBanError::Close(CloseError::UnknownPeer))?;
        self.ban(ban, duration).map_err(CloseAndBanError::Ban)?;
        shared.close(code, text).map_err(CloseAndBanError::Close)?;
        Ok(ban)
    }
}
