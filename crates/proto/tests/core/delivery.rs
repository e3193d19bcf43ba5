//! Messages arrive as their mode guarantees: whole or in fragments, late, and without memory.

mod blocks;
mod empty_messages;
mod fragments;
mod full_queues;
mod lifetimes;
mod modes;
mod networks;
mod send_memory;
