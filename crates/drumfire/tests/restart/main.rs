//! A server that is killed and started again, and one that is stopped for a while, as processes on the loopback: what
//! becomes of 200 clients.
//!
//! The same program is the server when it is started with `serve`, so that there is something to kill. How long
//! everything took is printed and not judged.

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
        ("all_are_back_by_token_after_the_server_was_killed", rounds::killed_by_token),
        ("all_are_back_openly_after_the_server_was_killed", rounds::killed_openly),
        ("nobody_is_lost_by_a_server_that_stood_still_for_3_s", rounds::stopped),
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
