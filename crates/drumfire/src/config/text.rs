//! The text form of configurations, in any format that serde supports. It is designed for TOML.
//!
//! `form` reads tables and choices. `choices`, `duration`, `admission`, and `link` define the forms of single settings. `secrets` reads
//! keys, and `settings` reads the two configurations. The application opens the configuration file.

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
