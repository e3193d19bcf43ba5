//! 200 clients of a server process that is killed and started again, or stopped for a while, over the loopback interface.
//!
//! With the argument `serve`, this program is the server, so that a test can kill it. The tests print durations, and do not check them.

mod clients;
#[path = "../it/server/own_address.rs"]
mod own_address;
mod process;
mod rounds;
mod serve;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("serve", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return serve::serve(rest);
    }
    let tests: [(&str, fn()); 3] = [
        ("clients_with_tokens_reconnect_after_the_server_was_killed", rounds::killed_by_token),
        ("clients_without_tokens_reconnect_after_a_server_was_killed", rounds::killed_openly),
        ("a_server_that_is_stopped_for_3_s_loses_no_client", rounds::stopped),
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
