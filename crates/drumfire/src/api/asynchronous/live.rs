//! What can be changed of an async server while it serves, and how it ends without haste.

use std::future::poll_fn;
use std::time::Duration;

use super::server::AsyncServer;
use crate::admission::gate::Gate;
use crate::base::error::ReconfigureError;
use crate::config::live::LiveConfig;
use crate::engine::control::Monitor;
use crate::engine::reconnect::SHUTDOWN_RESTARTS;
use crate::worker::drain::Undelivered;

impl AsyncServer {
    /// The view of an operator, to keep and to use from any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.core().monitor()
    }

    /// The switch for new players, to keep and to use from any thread.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.core().admission.gate().clone()
    }

    /// The settings that can change, as they are.
    #[must_use]
    pub fn live_config(&self) -> LiveConfig {
        self.core().live.clone()
    }

    /// Changes settings, as [`Server::reconfigure`](crate::Server::reconfigure) does.
    ///
    /// # Errors
    ///
    /// [`ReconfigureError`] naming the setting that cannot be used; then everything stays as it is.
    pub fn reconfigure(&self, live: &LiveConfig) -> Result<(), ReconfigureError> {
        self.core().reconfigure(live)
    }

    /// [`AsyncServer::close`], and says to all clients that another server takes the place of this one at once, as
    /// [`Server::stop_for_restart`](crate::Server::stop_for_restart) does.
    pub fn close_for_restart(&self) {
        self.core().pool.stop(SHUTDOWN_RESTARTS);
    }

    /// [`AsyncServer::close`] without haste: nobody new comes in, each connection is closed as soon as its peer has acknowledged
    /// all that was sent to it, and all others at the deadline. Answers what stayed undelivered then. Tasks take and send
    /// meanwhile as ever.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a future that is dropped leaves the server to its deadline, with nobody to hear what stayed undelivered.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = AsyncServer::bind(config)?;
    /// # let client = AsyncClient::connect_dev(server.local_addr()).await?;
    /// # let connection = server.accept().await.ok_or("the server is over")?;
    /// connection.send(Message::reliable_ordered(ChannelId(0), vec![1; 60_000])).await?;
    /// let undelivered = server.shut_down(Duration::from_secs(5)).await;
    /// assert!(undelivered.is_empty());
    /// assert!(matches!(client.recv().await, Ok((_, payload)) if payload.len() == 60_000));
    /// client.recv().await.unwrap_err();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shut_down(&self, deadline: Duration) -> Vec<Undelivered> {
        let drain = self.core().begin_drain(deadline);
        let undelivered = poll_fn(|context| drain.poll(context)).await;
        self.close();
        undelivered
    }
}
