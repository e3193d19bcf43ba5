//! The text forms of single settings, such as `wait = "notify"` and `congestion = { fixed = 125000 }`.

use drumfire_proto::{Congestion, Cookie};
use drumfire_socket::Wait;
use serde_core::de::{Deserialize, Deserializer, MapAccess};
use serde_core::ser::{Error, Serialize, SerializeMap, Serializer};

use super::duration::Human;
use super::form::{Choice, Form, read_choice};
use crate::config::client::Reconnect;
use crate::config::threads::Workers;

impl Choice<'_> for Form<Cookie> {
    const EXPECTED: &'static str = "\"always\" or \"under_load\"";

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "always" => Some(Self(Cookie::Always)),
            "under_load" => Some(Self(Cookie::UnderLoad)),
            _ => None,
        }
    }
}

impl Serialize for Form<Cookie> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self.0 {
            Cookie::Always => "always",
            Cookie::UnderLoad => "under_load",
        })
    }
}

impl<'de> Choice<'de> for Form<Congestion> {
    const EXPECTED: &'static str = "\"delay\", \"cubic\", or { fixed = bytes per second }";

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "delay" => Some(Self(Congestion::Delay)),
            "cubic" => Some(Self(Congestion::Cubic)),
            _ => None,
        }
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "fixed" {
            return Ok(None);
        }
        map.next_value().map(|Form(bytes_per_second)| Some(Self(Congestion::Fixed { bytes_per_second })))
    }
}

impl Serialize for Form<Congestion> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Congestion::Delay => serializer.serialize_str("delay"),
            Congestion::Cubic => serializer.serialize_str("cubic"),
            Congestion::Fixed { bytes_per_second } => entry(serializer, "fixed", &Form(bytes_per_second)),
            _ => Err(S::Error::custom("this congestion controller has no written form")),
        }
    }
}

impl<'de> Choice<'de> for Form<Wait> {
    const EXPECTED: &'static str = "\"best\", \"notify\", \"spin\", or { gather = \"130us\" }";

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "best" => Some(Self(Wait::best())),
            "notify" => Some(Self(Wait::Notify)),
            "spin" => Some(Self(Wait::Spin)),
            _ => None,
        }
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "gather" {
            return Ok(None);
        }
        map.next_value().map(|Human(time)| Some(Self(Wait::Gather(time))))
    }
}

impl Serialize for Form<Wait> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Wait::Notify => serializer.serialize_str("notify"),
            Wait::Spin => serializer.serialize_str("spin"),
            Wait::Gather(time) => entry(serializer, "gather", &Human(time)),
        }
    }
}

impl<'de> Choice<'de> for Workers {
    const EXPECTED: &'static str =
        "\"inline\", \"auto\", a number of threads from 1 to 1024, or { shards = [sockets, threads] }";

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "inline" => Some(Self::Inline),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }

    fn of_number(number: u64) -> Option<Self> {
        u16::try_from(number).ok().map(Self::Count)
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "shards" {
            return Ok(None);
        }
        map.next_value().map(|(sockets, threads)| Some(Self::Shards { sockets, threads }))
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_choice(deserializer)
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline => serializer.serialize_str("inline"),
            Self::Auto => serializer.serialize_str("auto"),
            Self::Count(count) => serializer.serialize_u16(*count),
            Self::Shards { sockets, threads } => entry(serializer, "shards", &(sockets, threads)),
        }
    }
}

impl<'de> Choice<'de> for Form<Reconnect> {
    const EXPECTED: &'static str = "\"never\", or { within = \"60s\" }";

    fn of_word(word: &str) -> Option<Self> {
        (word == "never").then_some(Self(Reconnect::Never))
    }

    fn of_entry<A: MapAccess<'de>>(name: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        if name != "within" {
            return Ok(None);
        }
        map.next_value().map(|Human(time)| Some(Self(Reconnect::Within(time))))
    }
}

impl Serialize for Form<Reconnect> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Reconnect::Never => serializer.serialize_str("never"),
            Reconnect::Within(time) => entry(serializer, "within", &Human(time)),
        }
    }
}

/// A 64-bit number. Numbers from 2^63 on are written as text, because some formats have signed numbers only.
impl Choice<'_> for Form<u64> {
    const EXPECTED: &'static str =
        "a whole number up to 18446744073709551615; from 2^63 on write it as text, \"0x..\" too";

    fn of_word(word: &str) -> Option<Self> {
        let digits = word.strip_prefix("0x");
        digits.map_or_else(|| word.parse(), |digits| u64::from_str_radix(digits, 16)).ok().map(Self)
    }

    fn of_number(number: u64) -> Option<Self> {
        Some(Self(number))
    }
}

impl Serialize for Form<u64> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(self.0) {
            Ok(number) => serializer.serialize_i64(number),
            Err(_) => serializer.collect_str(&self.0),
        }
    }
}

/// Writes a table with one entry.
pub(super) fn entry<S: Serializer>(
    serializer: S,
    name: &'static str,
    value: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(name, value)?;
    map.end()
}
