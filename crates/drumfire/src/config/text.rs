//! Configuration as text, in any format that has serde. TOML suits it best.
//!
//! Files of one subject each: how tables and choices are read, what single settings look like, secrets, and the two
//! configurations. Opening a configuration's file is the application's business.

mod admission;
mod choices;
mod duration;
mod form;
#[cfg(feature = "conditioner")]
mod link;
mod secrets;
mod settings;
#[cfg(test)]
mod tests;
