//! The packet protection suites by number, and the set of them a client offers.
//!
//! Deliberately only numbers: the algorithms live with the keys.

/// How packets are protected (PROTOCOL 4.2, "Suites").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suite {
    /// Suite 1, which everybody has.
    ChaCha20Poly1305,
    /// Suite 2, for machines with instructions for it.
    Aes128Gcm,
}

impl Suite {
    /// The suite's number on the wire.
    pub fn id(self) -> u8 {
        match self {
            Self::ChaCha20Poly1305 => 1,
            Self::Aes128Gcm => 2,
        }
    }

    /// The suite with this number, if this version knows it.
    pub fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::ChaCha20Poly1305),
            2 => Some(Self::Aes128Gcm),
            _ => None,
        }
    }

    /// This suite's bit in an offer.
    fn bit(self) -> u8 {
        match self {
            Self::ChaCha20Poly1305 => 0x01,
            Self::Aes128Gcm => 0x02,
        }
    }
}

/// The suites a client offers, one bit each. Bits of suites unknown here are kept and mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SuiteOffer(u8);

impl SuiteOffer {
    /// The smallest offer: suite 1 alone.
    pub fn mandatory() -> Self {
        Self(Suite::ChaCha20Poly1305.bit())
    }

    /// This offer and one suite more.
    pub fn with(self, suite: Suite) -> Self {
        Self(self.0 | suite.bit())
    }

    /// An offer as it stands in a Hello; `None` without suite 1, which nobody may leave out.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let offer = Self(bits);
        offer.has(Suite::ChaCha20Poly1305).then_some(offer)
    }

    /// The offer as it stands in a Hello.
    pub fn to_bits(self) -> u8 {
        self.0
    }

    /// Whether the client offers this suite.
    pub fn has(self, suite: Suite) -> bool {
        self.0 & suite.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suites_bit_stands_one_below_its_number() {
        for id in 0..=u8::MAX {
            if let Some(suite) = Suite::from_id(id) {
                assert_eq!((suite.id(), suite.bit()), (id, 1 << (id - 1)));
            }
        }
        assert_eq!((Suite::from_id(0), Suite::from_id(3)), (None, None));
    }

    #[test]
    fn an_offer_without_the_mandatory_suite_is_none() {
        assert_eq!(SuiteOffer::from_bits(0x02), None);
        assert_eq!(SuiteOffer::from_bits(0x01), Some(SuiteOffer::mandatory()));
        let both = SuiteOffer::mandatory().with(Suite::Aes128Gcm);
        assert_eq!(SuiteOffer::from_bits(0x03), Some(both));
        assert!(both.has(Suite::Aes128Gcm) && !SuiteOffer::mandatory().has(Suite::Aes128Gcm));
        let newer = SuiteOffer::from_bits(0xf1).unwrap();
        assert!(!newer.has(Suite::Aes128Gcm));
        assert_eq!(newer.to_bits(), 0xf1);
    }
}
