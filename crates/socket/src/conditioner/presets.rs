//! Ready-made links: [`LinkConfig::wifi`] and the others.

use std::time::Duration;

use super::config::{Delay, LinkConfig, Loss};

/// The name and the constructor of a preset.
type Preset = (&'static str, fn() -> LinkConfig);

const PRESETS: [Preset; 4] = [
    ("wifi", LinkConfig::wifi),
    ("lte", LinkConfig::lte),
    ("satellite", LinkConfig::satellite),
    ("bad_wifi", LinkConfig::bad_wifi),
];

/// # Presets
///
/// Each preset is one direction of an access link: the round trip takes twice its delay. The numbers are typical ones. They are not
/// measurements of a product, and may change with a new version.
impl LinkConfig {
    /// Returns a good Wi-Fi link in a home that shares its channel with neighbors.
    ///
    /// | | | because |
    /// | --- | --- | --- |
    /// | delay | 5 ms | a station waits for a free channel, and sends several datagrams in one frame |
    /// | jitter | 2 ms standard deviation | collisions and retries at the radio cost a few milliseconds |
    /// | loss | 0.1 %, independent | a frame is lost only after several retries at the radio |
    /// | rate | 40 Mbit/s with 100 ms of queue | the part of a shared channel that is left for one station |
    #[must_use]
    pub fn wifi() -> Self {
        Self::default().loss(Loss::Random(0.001)).delay(normal(5, 2)).rate(5_000_000, 500_000)
    }

    /// Returns an LTE link with a fair signal.
    ///
    /// | | | because |
    /// | --- | --- | --- |
    /// | delay | 30 ms | the device asks for a slot before it sends, and the core network adds its part |
    /// | jitter | 6 ms standard deviation | each retransmission of the radio layer (HARQ) costs 8 ms |
    /// | loss | 0.2 %, independent | the radio layer retransmits, so few datagrams are lost |
    /// | rate | 10 Mbit/s with 250 ms of queue | an uplink in a busy cell; base stations have deep queues |
    #[must_use]
    pub fn lte() -> Self {
        Self::default().loss(Loss::Random(0.002)).delay(normal(30, 6)).rate(1_250_000, 312_500)
    }

    /// Returns a link over a geostationary satellite.
    ///
    /// | | | because |
    /// | --- | --- | --- |
    /// | delay | 300 ms | light takes 239 to 279 ms up to the satellite at 35,786 km and down; coding adds some tens of ms |
    /// | jitter | 10 ms standard deviation | terminals share the uplink in time slots |
    /// | loss | 0.5 %, independent | rain fades exceed the error correction from time to time |
    /// | rate | 5 Mbit/s with 500 ms of queue | a home uplink; the queue holds about one round trip |
    #[must_use]
    pub fn satellite() -> Self {
        Self::default().loss(Loss::Random(0.005)).delay(normal(300, 10)).rate(625_000, 312_500)
    }

    /// Returns a Wi-Fi link at the edge of its range, or on a crowded channel.
    ///
    /// | | | because |
    /// | --- | --- | --- |
    /// | delay | 25 ms | most frames need retries, at a low radio rate |
    /// | jitter | 15 ms standard deviation | the number of retries differs for each frame |
    /// | loss | 3.8 % in all: 70 % in bursts of five datagrams, 0.5 % between them | interference lasts longer than the retries of a frame |
    /// | rate | 2 Mbit/s with 200 ms of queue | a low radio rate, most of which the retries take |
    #[must_use]
    pub fn bad_wifi() -> Self {
        // A fraction of 0.01 / (0.01 + 0.2) = 4.8 % is in bursts: 0.7 * 4.8 % + 0.005 * 95.2 % = 3.8 %.
        let loss = Loss::Bursts { begin: 0.01, end: 0.2, inside: 0.7, outside: 0.005 };
        Self::default().loss(loss).delay(normal(25, 15)).rate(250_000, 50_000)
    }

    /// The names of the presets, as [`LinkConfig::preset`] takes them.
    pub const PRESET_NAMES: [&str; PRESETS.len()] = [PRESETS[0].0, PRESETS[1].0, PRESETS[2].0, PRESETS[3].0];

    /// Returns the preset of this name, for example for an argument of the command line. `None` if there is no such preset.
    ///
    /// ```
    /// use drumfire_socket::conditioner::LinkConfig;
    ///
    /// assert_eq!(LinkConfig::preset("bad_wifi"), Some(LinkConfig::bad_wifi()));
    /// assert_eq!(LinkConfig::preset("modem"), None);
    /// assert_eq!(LinkConfig::PRESET_NAMES, ["wifi", "lte", "satellite", "bad_wifi"]);
    /// ```
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, preset)| preset())
    }
}

const fn normal(mean_millis: u64, deviation_millis: u64) -> Delay {
    Delay::Normal {
        mean: Duration::from_millis(mean_millis),
        deviation: Duration::from_millis(deviation_millis),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Link;
    use super::*;

    /// Sends 200,000 datagrams over a preset at 100 per second. Returns the lost fraction and the mean delay in milliseconds.
    fn measure(config: LinkConfig) -> (f64, f64) {
        const COUNT: u64 = 200_000;
        let mut link = Link::new(config, 11).unwrap();
        let mut delay_nanos = 0;
        for number in 0..COUNT {
            let now = Duration::from_nanos(number * 10_000_000);
            link.push(now, (), &number.to_be_bytes());
            while let Some(at) = link.next_at().filter(|at| *at <= now || number + 1 == COUNT) {
                let ((), bytes) = link.poll(at).unwrap();
                let number = u64::from_be_bytes(bytes.try_into().unwrap());
                delay_nanos += at.as_nanos() - u128::from(number) * 10_000_000;
            }
        }
        let counts = link.counts();
        assert_eq!(counts.queue_full + counts.too_large + counts.corrupted, 0);
        (counts.lost as f64 / COUNT as f64, delay_nanos as f64 / counts.delivered as f64 / 1e6)
    }

    #[test]
    fn presets_lose_and_delay_as_documented() {
        let documented = [
            ("wifi", 0.001, 5.0),
            ("lte", 0.002, 30.0),
            ("satellite", 0.005, 300.0),
            ("bad_wifi", 0.038, 25.0),
        ];
        for (name, loss, delay) in documented {
            let (lost, mean) = measure(LinkConfig::preset(name).unwrap());
            assert!((lost / loss - 1.0).abs() < 0.15, "{name}: {lost}");
            // Datagrams keep their order, so a late one delays the next ones too.
            assert!((delay..delay * 1.4).contains(&mean), "{name}: {mean}");
        }
    }
}
