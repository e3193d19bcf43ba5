//! Draws hostile Hellos: valid, invalid, and repeated ones. Some faults are visible to the server only after a key
//! agreement.

use drumfire_wire::limits::CLIENT_PARAMETERS_BYTES;
use drumfire_wire::{Retry, SuiteOffer};
use strum::{IntoStaticStr, VariantArray, VariantNames};

use crate::handshake::{Handshake, default_parameters};
use crate::random::Random;

/// The fault of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum DrawnHello {
    /// The Hello has no fault.
    Good,
    /// The Noise message does not open, which the server detects only after a key agreement.
    BadNoise,
    /// The Noise message opens, and its payload is no parameters.
    BadParameters,
    /// `mac1` does not fit.
    BadMac1,
    /// The client has a cookie and does not send it.
    NoCookie,
    /// The Hello was sent before.
    Repeated,
}

impl DrawnHello {
    /// The names of all kinds.
    pub const NAMES: &[&str] = <Self as VariantNames>::VARIANTS;

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The Hellos of one source.
pub struct HelloFlood {
    random: Random,
    weights: Vec<(DrawnHello, u64)>,
    server_key: [u8; 32],
    /// The number of handshakes that this flood begins. Afterwards it repeats them.
    begun_max: usize,
    begun: usize,
    /// Handshakes that have a cookie.
    kept: Vec<Handshake>,
    /// Handshakes that wait for their Retry.
    asked: Vec<(DrawnHello, Handshake)>,
}

impl HelloFlood {
    /// Draws the mix of a flood against the server with this public key.
    #[must_use]
    pub fn draw(mut random: Random, server_key: [u8; 32]) -> Self {
        let mut weight = || if random.happens(50) { 1 << random.below(6) } else { 0 };
        let mut weights: Vec<_> =
            <DrawnHello as VariantArray>::VARIANTS.iter().map(|kind| (*kind, weight())).collect();
        if weights.iter().all(|(_, weight)| *weight == 0) {
            weights[random.index(6)].1 = 1;
        }
        let begun_max = random.pick(&[1, 4, 40]);
        Self { random, weights, server_key, begun_max, begun: 0, kept: Vec::new(), asked: Vec::new() }
    }

    /// Returns the next Hello and its fault.
    pub fn next_hello(&mut self) -> (DrawnHello, Vec<u8>) {
        let drawn = self.random.weighted(&self.weights);
        let at = self.random.index(self.kept.len());
        if let Some(handshake) = self.kept.get(at)
            && (matches!(drawn, DrawnHello::Repeated | DrawnHello::NoCookie) || self.begun >= self.begun_max)
        {
            return match drawn {
                DrawnHello::NoCookie => (drawn, handshake.hello_without_cookie()),
                _ => (DrawnHello::Repeated, handshake.hello()),
            };
        }
        let handshake = self.begin(drawn);
        let hello = handshake.hello();
        self.asked.push((drawn, handshake));
        (drawn, hello)
    }

    /// Handles a datagram of the server to the source of the flood. Returns the Hello that answers a Retry.
    pub fn on_answer(&mut self, datagram: &[u8]) -> Option<(DrawnHello, Vec<u8>)> {
        let retry = Retry::decode(datagram).ok()?;
        let at = self.asked.iter().position(|(_, handshake)| handshake.client_id() == retry.client_id)?;
        let (drawn, mut handshake) = self.asked.swap_remove(at);
        handshake.on_retry(datagram);
        let hello = handshake.hello();
        self.kept.push(handshake);
        Some((drawn, hello))
    }

    /// Begins a handshake with the drawn fault.
    fn begin(&mut self, drawn: DrawnHello) -> Handshake {
        self.begun += 1;
        let (client_id, ephemeral) = (self.random.bits().to_be_bytes(), self.random.secret());
        let payload = if drawn == DrawnHello::BadParameters {
            [self.random.pick(&[0, 0xff]); CLIENT_PARAMETERS_BYTES]
        } else {
            default_parameters().encode()
        };
        let mut handshake =
            Handshake::with(&self.server_key, client_id, ephemeral, &payload, SuiteOffer::mandatory());
        match drawn {
            DrawnHello::BadNoise => handshake.corrupt_noise(self.random.index(600)),
            DrawnHello::BadMac1 => handshake.corrupt_mac1(),
            _ => {}
        }
        handshake
    }
}
