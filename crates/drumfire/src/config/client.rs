//! The settings of a client.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{ClientConfig as CoreClient, Config, Congestion};

use super::check_receive_buffer;
use crate::base::error::Error;
use crate::base::setters::setters;

/// The shortest time of [`Reconnect::Within`].
const WITHIN_MIN: Duration = Duration::from_secs(1);
/// The longest time of [`Reconnect::Within`].
const WITHIN_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The settings of a client, in all three interfaces.
///
/// With the feature `serde`, they can be read from any format that serde supports, in the forms that [`ServerConfig`] shows. They can
/// also be written:
///
/// ```
/// # #[cfg(feature = "serde")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use drumfire::*;
/// let config: ClientConfig = toml::from_str(r#"
///     protocol_id = 7
///     idle_timeout = "5s"
///     congestion = "cubic"
/// "#)?;
/// assert_eq!((config.protocol_id, config.idle_timeout), (7, Duration::from_secs(5)));
/// assert!(toml::to_string(&config)?.contains("idle_timeout = \"5s\""));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "serde"))]
/// # fn main() {}
/// ```
///
/// [`ServerConfig`]: crate::ServerConfig
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Identifies the game and its build. The server needs the same value. The default is 0.
    #[cfg_attr(feature = "serde", serde(with = "crate::config::text::number"))]
    pub protocol_id: u64,
    /// The largest number of connections at the same time, including attempts to connect, 1 to 4,194,304. The default is 1. The
    /// limits of memory and of bytes in flight apply to each connection.
    ///
    /// A client with one connection and without an [`address`](Self::address) has a socket that is connected to its server. All
    /// other clients have one socket for all connections, and packets to it carry a connection id of 8 bytes.
    pub connections: u32,
    /// The address to which the socket is bound. Port 0 selects a free port. The servers must be reachable from the address.
    ///
    /// `None`, the default, lets the system choose. A client with several connections then reaches servers with IPv4 and IPv6 addresses
    /// where the system allows it, otherwise those with IPv4 addresses.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub address: Option<SocketAddr>,
    /// The memory in bytes for messages that wait to be sent or are not acknowledged. Each message is charged 64 bytes more than
    /// its length. The minimum is 4 KiB, and the default is 1 MiB.
    pub send_memory_bytes: usize,
    /// The memory in bytes for received messages that wait for the application, with the same charge per message. The minimum is 4
    /// KiB, and the default is 2 MiB. The server begins with credit for 128 KiB of reliable messages, or for two of the longest
    /// messages if that is more, but at most for half of this memory. The credit grows up to that half while the application takes
    /// them.
    pub receive_memory_bytes: usize,
    /// The length in bytes of the longest reliable message, in both directions. 1 KiB to 16 MiB, and at most a quarter of either memory;
    /// `None`, the default, is 64 KiB, or a quarter of the smaller memory if that is less. The server should have the same value, because
    /// the smaller of both applies.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub message_max_bytes: Option<usize>,
    /// The largest number of bytes in flight, even if the congestion controller allows more. At least 2,400, 4 MiB by default.
    ///
    /// A connection begins with 128 KiB, or half of `send_memory_bytes` if that is less. It raises its limit up to this one while its path
    /// delivers more. `send_memory_bytes` here and half of `receive_memory_bytes` at the server limit it too. The defaults are enough for
    /// 100 Mbit/s at a round trip of 50 ms. For 100 ms, set both memories to 4 MiB.
    pub in_flight_bytes: usize,
    /// The congestion controller, which determines the sending rate. The default is [`Congestion::Delay`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "super::text::congestion"))]
    pub congestion: Congestion,
    /// The time without any packet from the server after which the connection ends. The range is 1 s to 49 days, and the default is
    /// 30 s.
    #[cfg_attr(feature = "serde", serde(with = "drumfire_socket::duration_text"))]
    pub idle_timeout: Duration,
    /// The time without an acknowledgment for a packet after which the connection ends. The range is 1 s to 49 days, and the
    /// default is 10 s.
    #[cfg_attr(feature = "serde", serde(with = "drumfire_socket::duration_text"))]
    pub unacknowledged_timeout: Duration,
    /// The receive buffer that each socket requests from the kernel, in bytes, 4 KiB to 1 GiB. It must hold the datagrams that arrive
    /// between two polls. `None`, the default, requests 64 KiB for each connection that the socket can have, at least 256 KiB and at
    /// most 4 MiB. It never lowers the default of the system.
    ///
    /// The kernel grants at most `net.core.rmem_max`; see [`SocketGrants`](crate::stats::SocketGrants).
    /// [`WorkerStats::kernel_dropped`](crate::stats::WorkerStats::kernel_dropped) counts the datagrams for which the buffer had no room.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub receive_buffer_bytes: Option<usize>,
    /// Whether the client reconnects by itself when its connection ends. The default is [`Reconnect::Never`].
    pub reconnect: Reconnect,
    /// Whether the client continues from another local address when the device has changed its network, for example from Wi-Fi to
    /// mobile. The default is on. Only a client whose socket is connected to its server does so: see
    /// [`connections`](Self::connections).
    ///
    /// The client looks for another address when the system refuses to send, and once per second while the server is silent and a
    /// packet is not acknowledged. If there is no other address, the connection ends by its timeouts. Without this setting, it ends
    /// as [`Unreachable`](crate::CloseReason::Unreachable) at the first refusal.
    pub follow_network: bool,
    /// Whether a busy connection records its last events, in 3 KiB of memory. If the connection ends in a way that neither
    /// application requested, [`Event::FlightRecord`](crate::Event::FlightRecord) contains the record. The default is on.
    pub flight_recorder: bool,
    /// Simulates a bad network at the socket, to test a game. Each direction is a [`Link`](crate::conditioner::Link) with this
    /// configuration, so the delay applies twice to a round trip, and four times if both ends simulate.
    ///
    /// `None`, the default, is no simulation. [`LinkConfig::default()`](crate::conditioner::LinkConfig) is a perfect link, which
    /// `set_conditioner` of the client can change later. See [`conditioner`](crate::conditioner).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub conditioner: Option<crate::conditioner::LinkConfig>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        let core = Config::default();
        Self {
            protocol_id: core.protocol_id,
            connections: 1,
            address: None,
            send_memory_bytes: core.send_memory_bytes,
            receive_memory_bytes: core.receive_memory_bytes,
            message_max_bytes: None,
            in_flight_bytes: core.in_flight_bytes,
            congestion: core.congestion,
            idle_timeout: core.idle_timeout,
            unacknowledged_timeout: core.unacknowledged_timeout,
            receive_buffer_bytes: None,
            reconnect: Reconnect::Never,
            follow_network: true,
            flight_recorder: core.flight_recorder,
            conditioner: None,
        }
    }
}

common_settings!(ClientConfig);

impl ClientConfig {
    /// Checks the fields that the core does not check.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_receive_buffer(self.receive_buffer_bytes)?;
        super::check_conditioner(self.conditioner.as_ref())?;
        self.reconnect.check()
    }

    /// Whether the socket is connected to the server of the only connection.
    pub(crate) fn has_connected_socket(&self) -> bool {
        self.connections == 1 && self.address.is_none()
    }

    /// Returns the configuration of the core for a client. It determines whether packets to the client carry connection ids.
    pub(crate) fn core_client(&self) -> CoreClient {
        if self.has_connected_socket() { CoreClient::default() } else { CoreClient::many() }
    }

    pub(crate) fn core(&self) -> Config {
        self.shared_core(self.connections)
    }
}

setters! {
    ClientConfig:
    /// Sets the address to which the socket is bound.
    address(address: SocketAddr) = Some(address);

    /// Sets whether the client reconnects by itself.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # let config = ClientConfig::default();
    /// // A server that is restarted is back within a minute.
    /// let config = config.reconnect(Reconnect::Within(Duration::from_secs(60)));
    /// ```
    reconnect(reconnect: Reconnect) = reconnect;

    /// Sets whether the client follows changes of the network.
    follow_network(is_on: bool) = is_on;
}

/// Determines whether a client reconnects by itself after an end that neither application requested.
///
/// A client reconnects in these cases:
///
/// - The server was restarted: [`CloseReason::Reset`](crate::CloseReason::Reset), or a shutdown that
///   [`Control::shut_down_for_restart`](crate::Control::shut_down_for_restart) announced.
/// - The path failed: [`CloseReason::IdleTimeout`](crate::CloseReason::IdleTimeout), [`CloseReason::Unacknowledged`](crate::CloseReason::Unacknowledged), or [`CloseReason::Unreachable`](crate::CloseReason::Unreachable).
/// - The keys are used up, or were invalidated at this client.
/// - An attempt received no answer or could not be sent, or the server was full.
/// - An authenticated refusal redirected the attempt to another address.
/// - A refusal is not authenticated ([`Refusal::is_proved`](crate::error::Refusal::is_proved)), so an attacker may have written it. All
///   refusals in open access are of this kind, also those of banned clients. `Reconnecting` reports each, and attempts go on with growing
///   waits.
///
/// It does not reconnect after a close by either application, a final shutdown, a protocol error, or another authenticated refusal. It
/// also gives up when the same player connected from elsewhere.
///
/// The client presents its newest resume token. Without one, it presents the token of its first connection, if it had one. Channel options
/// are kept.
///
/// # Messages
///
/// No message is carried over to another connection, and none is lost without notice:
///
/// - While there is no connection, `send` returns [`SendError::NotConnected`](drumfire_proto::SendError::NotConnected), also before the
///   first one. On every `Connected` event, send the messages that the server needs first, such as a login.
/// - A message that was accepted before the client noticed the loss may or may not have arrived. If it has a receipt,
///   [`Event::Receipt`](crate::Event::Receipt) comes before `Reconnecting`. The outcome is `Lost` if the acknowledgment did not arrive.
///
/// The client waits for a random time before each attempt, so that the clients of a restarted server are spread over time. The wait is
/// at most 100 ms before the first attempt, and its limit doubles up to 5 s. A server that is full may ask for a longer wait in an authenticated refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Reconnect {
    /// The client does not reconnect. This is the default, because the server forgets the state of a lost connection, and only an
    /// application that expects this can rebuild it.
    #[default]
    Never,
    /// The client starts attempts for this time after the connection ended, or after the first attempt. The range is 1 s to 24 h. The
    /// last attempt may take 5 s more.
    Within(#[cfg_attr(feature = "serde", serde(with = "drumfire_socket::duration_text"))] Duration),
}

impl Reconnect {
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Within(within) if !(WITHIN_MIN..=WITHIN_MAX).contains(&within) => {
                Err(Error::setting("reconnect", "must be within 1 s to 24 h"))
            }
            _ => Ok(()),
        }
    }
}
