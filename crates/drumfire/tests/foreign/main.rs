//! Another process on the port of a server. The server reports it while it is on the port, and it receives no datagram of a connection.
//! A server with one socket does not share its port.
//!
//! With the argument `join`, this program is the other process. The tests run on Linux only, because other platforms share no ports.

#[cfg(target_os = "linux")]
mod alarm;
#[cfg(target_os = "linux")]
mod other;
#[cfg(target_os = "linux")]
#[path = "../it/server/world.rs"]
mod world;

#[cfg(target_os = "linux")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, address] = arguments.as_slice()
        && first == "join"
    {
        return other::join(address);
    }
    let tests: [(&str, fn()); 2] = [
        ("another_process_on_the_port_is_reported_until_it_leaves", alarm::while_it_is_there),
        ("no_other_process_joins_a_server_with_one_socket", alarm::never_with_one_socket),
    ];
    let is_list = arguments.iter().any(|argument| argument == "--list");
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    for (name, test) in tests.into_iter().filter(|(name, _)| filter.is_none_or(|part| name.contains(part))) {
        if is_list {
            println!("{name}: test");
        } else {
            test();
            println!("test {name} ... ok");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
