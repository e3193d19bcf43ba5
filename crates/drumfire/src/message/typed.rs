//! Channels that carry values of one type. A [`Channel`] consists of a channel id, send options, and a codec.
//!
//! A channel only converts values to payloads and back, so all other parts of the crate handle bytes. Encoding a value costs one
//! allocation. To send one value to many peers, clone the [`Message`] or broadcast it.

#[cfg(feature = "postcard")]
mod guard;
pub(crate) mod postcard;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use drumfire_proto::{ChannelId, Message, SendOptions};

use postcard::Postcard;

/// Converts values to bytes and back.
///
/// A modified client can send any bytes. So an implementation of `decode` must keep these promises for all bytes:
///
/// - It returns. It does not panic, and it does not overflow the stack.
/// - Its memory is proportional to the number of bytes, and not to lengths that the bytes contain.
/// - It returns an error if bytes are left over. Otherwise a value would have several encodings.
///
/// ```
/// use drumfire::typed::Codec;
/// use drumfire::{Channel, ChannelId, SendOptions};
///
/// struct Position { x: f32, y: f32 }
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct WrongLength;
/// # impl std::fmt::Display for WrongLength {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("not a position") }
/// # }
/// # impl std::error::Error for WrongLength {}
///
/// /// Encodes a position as two big-endian numbers.
/// #[derive(Clone, Copy)]
/// struct Raw;
///
/// impl Codec<Position> for Raw {
///     type Error = WrongLength;
///
///     fn encode(&self, value: &Position, into: &mut Vec<u8>) -> Result<(), WrongLength> {
///         into.extend_from_slice(&value.x.to_be_bytes());
///         into.extend_from_slice(&value.y.to_be_bytes());
///         Ok(())
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Result<Position, WrongLength> {
///         let (x, y) = bytes.split_first_chunk::<4>().ok_or(WrongLength)?;
///         let y = y.try_into().map_err(|_| WrongLength)?;
///         Ok(Position { x: f32::from_be_bytes(*x), y: f32::from_be_bytes(y) })
///     }
/// }
///
/// const POSITIONS: Channel<Position, Raw> =
///     Channel::with_codec(ChannelId(3), SendOptions::unreliable_sequenced(), Raw);
///
/// let message = POSITIONS.message(&Position { x: 1.0, y: -2.0 })?;
/// assert_eq!(message.payload.len(), 8);
/// assert_eq!(POSITIONS.decode(&message.payload)?.y, -2.0);
/// assert!(POSITIONS.decode(&message.payload[1..]).is_err());
/// # Ok::<(), drumfire::typed::ChannelError<WrongLength>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no codec for `{T}`",
    note = "`Postcard` is one for types that have serde's `Serialize` and `Deserialize`, with drumfire's feature `postcard`"
)]
pub trait Codec<T> {
    /// The error for a value that cannot be encoded, and for bytes that cannot be decoded.
    type Error: Error + Send + Sync + 'static;

    /// Appends the bytes of the value to `into`.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has no encoding.
    fn encode(&self, value: &T, into: &mut Vec<u8>) -> Result<(), Self::Error>;

    /// Returns the value that the bytes encode.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not the encoding of exactly one value.
    fn decode(&self, bytes: &[u8]) -> Result<T, Self::Error>;
}

/// A channel whose messages are values of one type.
///
/// Both ends must have the same id, type, and codec. Change the [`protocol_id`](crate::ServerConfig::protocol_id) whenever the encoding
/// changes. An event has the id of its channel: a constant such as `const ORDERS_ID: ChannelId = ORDERS.id();` can be the pattern of a
/// `match`. A message on a channel that the game does not know is delivered too.
///
/// ```
/// # #[cfg(feature = "postcard")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// use drumfire::{Channel, ChannelId, Event, SendOptions};
/// # use drumfire::*;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// enum Order {
///     Move { x: i32, y: i32 },
///     Say(String),
/// }
///
/// const ORDERS: Channel<Order> = Channel::new(ChannelId(1), SendOptions::reliable_ordered());
///
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config.workers(Workers::Inline))?;
/// # let mut client = Client::new(ClientConfig::default())?;
/// # let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
/// client.send(peer, ORDERS.message(&Order::Move { x: 3, y: -4 })?)?;
/// # let mut orders = Vec::new();
/// # while orders.is_empty() {
/// #     client.poll(Duration::from_millis(1));
/// server.poll(Duration::ZERO);
/// while let Some(event) = server.next_event() {
///     match event {
///         Event::Message { peer, channel, payload } if channel == ORDERS.id() => match ORDERS.decode(&payload) {
///             Ok(order) => {
///                 server.send(peer, ORDERS.message(&Order::Say("yes".to_owned()))?)?;
///                 orders.push(order);
///             }
///             // Only a modified client sends this.
///             Err(_) => server.close(peer, 1, "not an order"),
///         },
///         _ => {}
///     }
/// }
/// # }
/// assert_eq!(orders, [Order::Move { x: 3, y: -4 }]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "postcard"))]
/// # fn main() {}
/// ```
pub struct Channel<T, C = Postcard> {
    id: ChannelId,
    options: SendOptions,
    codec: C,
    max_bytes: usize,
    of: PhantomData<fn(T) -> T>,
}

impl<T> Channel<T> {
    /// Creates a channel with this id and these send options. [`Postcard`] encodes its values.
    #[must_use]
    pub const fn new(id: ChannelId, options: SendOptions) -> Self {
        Self::with_codec(id, options, Postcard)
    }
}

impl<T, C> Channel<T, C> {
    /// Creates a channel with this id, these send options, and this codec.
    #[must_use]
    pub const fn with_codec(id: ChannelId, options: SendOptions, codec: C) -> Self {
        Self { id, options, codec, max_bytes: options.mode.message_max_bytes(), of: PhantomData }
    }

    /// Sets the maximum length of an encoded value in bytes, for both directions. The default is the limit of the mode, 64 KiB for
    /// reliable modes.
    ///
    /// A lower limit bounds the work that a modified client can cause. A higher limit needs a higher
    /// [`message_max_bytes`](crate::ServerConfig::message_max_bytes) at both ends too.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Returns the channel id. Compare it with the channel of a received message.
    #[must_use]
    pub const fn id(&self) -> ChannelId {
        self.id
    }

    /// Returns the options with which messages are sent.
    #[must_use]
    pub const fn options(&self) -> SendOptions {
        self.options
    }

    fn check<E>(&self, bytes: usize) -> Result<(), ChannelError<E>> {
        let limit_bytes = self.max_bytes;
        if bytes <= limit_bytes { Ok(()) } else { Err(ChannelError::TooLarge { bytes, limit_bytes }) }
    }
}

impl<T, C: Codec<T>> Channel<T, C> {
    /// Encodes a value as a message, with the options of the channel.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Encode`] and [`ChannelError::TooLarge`].
    pub fn message(&self, value: &T) -> Result<Message, ChannelError<C::Error>> {
        self.message_with(value, self.options)
    }

    /// Encodes a value as a message with other options, for example a key for [`ReliableLatest`](crate::Mode::ReliableLatest) or a
    /// lifetime.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Encode`] and [`ChannelError::TooLarge`].
    pub fn message_with(&self, value: &T, options: SendOptions) -> Result<Message, ChannelError<C::Error>> {
        let mut bytes = Vec::new();
        self.codec.encode(value, &mut bytes).map_err(ChannelError::Encode)?;
        self.check(bytes.len())?;
        Ok(Message::new(self.id, bytes, options))
    }

    /// Decodes the payload of a message of this channel. A modified client can send any payload, so handle the error.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Decode`] and [`ChannelError::TooLarge`].
    pub fn decode(&self, bytes: &[u8]) -> Result<T, ChannelError<C::Error>> {
        self.check(bytes.len())?;
        self.codec.decode(bytes).map_err(ChannelError::Decode)
    }
}

impl<T, C: Clone> Clone for Channel<T, C> {
    fn clone(&self) -> Self {
        Self { codec: self.codec.clone(), of: PhantomData, ..*self }
    }
}

impl<T, C: Copy> Copy for Channel<T, C> {}

impl<T, C> fmt::Debug for Channel<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.id)
            .field("options", &self.options)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// The error of encoding or decoding a value. `E` is the error of the codec.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError<E> {
    /// The value has no encoding.
    Encode(E),
    /// The bytes do not encode a value of this channel.
    Decode(E),
    /// The encoded value is longer than the channel allows.
    TooLarge {
        /// The length of the encoded value in bytes.
        bytes: usize,
        /// The maximum length in bytes; see [`Channel::max_bytes`].
        limit_bytes: usize,
    },
}

impl<E: fmt::Display> fmt::Display for ChannelError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encode(error) => write!(f, "the value cannot be encoded: {error}"),
            Self::Decode(error) => write!(f, "the bytes are no value of this channel: {error}"),
            Self::TooLarge { bytes, limit_bytes } => {
                write!(f, "the value has {bytes} bytes, and its channel allows {limit_bytes}")
            }
        }
    }
}

// `debug_with_display` does not support type parameters.
impl<E: fmt::Display> fmt::Debug for ChannelError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: Error + 'static> Error for ChannelError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Encode(error) | Self::Decode(error) => Some(error),
            Self::TooLarge { .. } => None,
        }
    }
}
