//! Tests of the sockets in one program. The tests that count allocations of the whole process have their own program.

mod fixtures;

mod accounting;
mod budget;
mod edge;
mod errno;
mod gathering;
mod group;
mod local;
mod multi_poller;
mod settings;
mod steering;
mod trains;
