//! Two ends connect: Hellos, cookies, tokens, admission, and floods of Hellos.

mod addresses;
mod admission;
mod agreement;
mod cookies;
mod copies;
mod hello_server;
mod invalid_hellos;
mod limits;
mod reserved_ids;
mod shards;
mod sources;
mod stalled_clients;
mod tokens;
