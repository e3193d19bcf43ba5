//! The guide: from a first server to a server with many players. Each page answers one question and can be read alone.
//!
//! | page | after reading it |
//! | --- | --- |
//! | [`first_server`] | you have a server and a client, in two terminals and on two hosts |
//! | [`delivery_modes`] | you know which mode fits each kind of message |
//! | [`three_ways`] | you can choose between tick, handler, and async |
//! | [`authentication`] | your backend issues tokens, and the server knows its players |
//! | [`reconnecting`] | your clients return by themselves and log in again |
//! | [`deploying`] | your server runs as a service, restarts, and drains |
//! | [`metrics`] | you know every number that Prometheus can read |
//! | [`fleet`] | you can run a fleet, and put proxies or load balancers in front |
//! | [`tuning`] | you can size workers, memory, and rates, and read the statistics |
//! | [`security`] | you know what is protected, and what to set |
//! | [`what_it_does_not_do`] | you know what is missing, and what to use instead |
//! | [`migrating`] | you can map ENet, renet, and LiteNetLib to drumfire |
//!
//! The pages are Markdown files that can also be read and copied on GitHub. Their examples have no hidden lines.

/// A page from `docs/guide`. On GitHub a link such as `[tuning]` leads to the definition at the end of the file. In rustdoc
/// the definitions below come first, so they take precedence (CommonMark, section 4.7).
macro_rules! pages {
    ($($name:ident),+ $(,)?) => {$(
        #[doc = "[authentication]: crate::guide::authentication"]
        #[doc = "[delivery_modes]: crate::guide::delivery_modes"]
        #[doc = "[deploying]: crate::guide::deploying"]
        #[doc = "[first_server]: crate::guide::first_server"]
        #[doc = "[fleet]: crate::guide::fleet"]
        #[doc = "[metrics]: crate::guide::metrics"]
        #[doc = "[migrating]: crate::guide::migrating"]
        #[doc = "[reconnecting]: crate::guide::reconnecting"]
        #[doc = "[security]: crate::guide::security"]
        #[doc = "[three_ways]: crate::guide::three_ways"]
        #[doc = "[tuning]: crate::guide::tuning"]
        #[doc = "[what_it_does_not_do]: crate::guide::what_it_does_not_do"]
        #[doc = ""]
        #[doc = include_str!(concat!("../docs/guide/", stringify!($name), ".md"))]
        pub mod $name {}
    )+};
}

pages!(
    authentication,
    delivery_modes,
    deploying,
    first_server,
    fleet,
    metrics,
    migrating,
    reconnecting,
    security,
    three_ways,
    tuning,
    what_it_does_not_do,
);
