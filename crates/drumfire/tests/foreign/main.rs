//! Another process on the port of a server: seen while it is there, given nothing of connections that there are, and kept
//! out where the server has one socket.
//!
//! The same program is the other process when it is started with `join`. What one platform alone can do is tested where it
//! can be done; elsewhere nobody shares a port.

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
        ("an_alarm_tells_of_another_process_while_it_is_there", alarm::while_it_is_there),
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
