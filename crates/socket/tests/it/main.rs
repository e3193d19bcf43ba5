//! Tests of the sockets, in one program. Tests that count allocations or open files of the whole process have programs of their own.

mod inbox;
mod script;

mod accounting;
mod budget;
mod edge;
mod errno;
mod gathering;
mod group;
mod hub;
mod local;
mod settings;
mod steering;
mod trains;
mod watch;
