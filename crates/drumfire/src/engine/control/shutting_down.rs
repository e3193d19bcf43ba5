//! The end of a server by an operator: [`Control::shut_down`] and [`Control::shut_down_for_restart`].

use std::time::Duration;

use super::{Control, ControlState};
use crate::admission::Gate;
use crate::base::sync::{Pending, lock};
use crate::worker::command::Command;
use crate::worker::reconnect::SHUTDOWN_RESTARTS;
use crate::worker::shutdown::{ShutdownOrder, Undelivered};

impl Control {
    /// Refuses new connections, and closes each connection with [`CloseCode::Shutdown`](crate::error::CloseCode::Shutdown) as soon as
    /// the peer has acknowledged everything, at the latest after `deadline`. The result lists the messages that were not acknowledged
    /// by then. A later call replaces the deadline, and the results of all calls complete together. Drop the server when the result is
    /// complete.
    ///
    /// To let players finish, call [`Control::close_gate`] first, announce the shutdown to the players, and wait until they have left.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::error::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config)?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # let peer = loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Connected { peer, .. }) = server.next_event() { break peer }
    /// # };
    /// server.send(peer, Message::reliable_ordered(ChannelId(0), vec![1; 60_000]))?;
    /// # let client = std::thread::spawn(move || loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     let last = client.events().last();
    /// #     if let Some(Event::Disconnected { closed, .. }) = last { break closed.reason }
    /// # });
    /// let mut shutdown = server.control().shut_down(Duration::from_secs(5));
    /// let undelivered = loop {
    ///     server.poll(Duration::from_millis(1));
    ///     server.events().for_each(drop);
    ///     if let Some(undelivered) = shutdown.try_take() { break undelivered }
    /// };
    /// assert!(undelivered.is_empty());
    /// # let reason = client.join().unwrap();
    /// # assert_eq!(reason, CloseReason::Remote { code: CloseCode::Shutdown, application_code: 0 });
    /// # Ok(())
    /// # }
    /// ```
    pub fn shut_down(&self, deadline: Duration) -> Pending<Vec<Undelivered>> {
        self.shut_down_with(deadline, 0)
    }

    /// Shuts down as [`Control::shut_down`] does, and notifies the clients that the server will restart. Clients with
    /// [`Reconnect::Within`](crate::Reconnect::Within) then connect again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let at = |address| ServerConfig::new(address, ServerKey::dev(), Access::Open);
    /// let mut server = Server::bind(at("127.0.0.1:0".parse()?))?;
    /// let address = server.local_addr();
    /// let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
    /// let mut client = Client::new(config)?;
    /// let peer = client.connect((address, ServerKey::dev().public()))?;
    /// # while !client.is_connected(peer) || server.control().stats().connections() == 0 {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::from_millis(1));
    /// #     (client.events().count(), server.events().count());
    /// # }
    ///
    /// let mut shutdown = server.control().shut_down_for_restart(Duration::ZERO);
    /// while shutdown.try_take().is_none() {
    ///     server.poll(Duration::from_millis(1));
    ///     server.events().for_each(drop);
    /// }
    /// drop(server);
    /// let mut server = Server::bind(at(address))?;
    /// loop {
    ///     client.poll(Duration::from_millis(1));
    ///     client.events().count();
    ///     server.poll(Duration::ZERO);
    ///     if let Some(Event::Connected { .. }) = server.next_event() { break }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn shut_down_for_restart(&self, deadline: Duration) -> Pending<Vec<Undelivered>> {
        self.shut_down_with(deadline, SHUTDOWN_RESTARTS)
    }

    fn shut_down_with(&self, deadline: Duration, application_code: u32) -> Pending<Vec<Undelivered>> {
        let ControlState { links, admission, change_lock, .. } = &*self.server;
        let mut gate = admission.gate();
        // A redirect that the operator has set stays.
        if *gate == Gate::Open {
            *gate = Gate::Closed(None);
        }
        drop(gate);
        let deadline = self.now().after(deadline);
        let (undelivered, parts) = Pending::new(Vec::new(), links.len());
        let _change = lock(change_lock);
        for (link, part) in links.iter().zip(parts) {
            link.send_command(Command::ShutDown(ShutdownOrder { deadline, application_code, part }));
        }
        undelivered
    }
}
