//! Tasks that send and receive a batch of 16 messages cost at most one heap allocation on their own thread.
//!
//! The unit tests of the async interface count the allocations of the task and of its worker together.

use allocation_counter::measure;
use drumfire::asynchronous::Connection;
use drumfire::{
    Access, Bytes, ChannelId, ClientConfig, Message, SendOptions, ServerConfig, ServerKey, Workers,
    asynchronous,
};

const MESSAGE: &[u8] = &[7; 200];

const BATCH: u32 = 16;

/// The number of batches before the count starts, in which buffers grow to their final size.
const WARM_UP: u32 = 500;

const COUNTED: u32 = 500;

const OPTIONS: SendOptions = SendOptions::reliable_ordered();

async fn speak(connection: &Connection) {
    for _ in 0..BATCH {
        connection.send(Message::new(ChannelId(0), Bytes::from_static(MESSAGE), OPTIONS)).await.unwrap();
    }
}

async fn listen(connection: &Connection) {
    for _ in 0..BATCH {
        let Ok((_, payload)) = connection.recv().await else { panic!("a message") };
        assert_eq!(payload, MESSAGE);
    }
}

/// Sends `batches` batches in each direction. The tasks of both ends run on this thread.
async fn echo(batches: u32, client: &Connection, at_server: &Connection) {
    for _ in 0..batches {
        speak(client).await;
        listen(at_server).await;
        speak(at_server).await;
        listen(client).await;
    }
}

#[test]
fn a_batch_of_messages_costs_its_tasks_at_most_one_allocation() {
    let address = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Count(1));
    let server = asynchronous::Server::bind(config).unwrap();
    let client = asynchronous::Client::new(ClientConfig::default()).unwrap();
    let to = (server.local_addr(), ServerKey::dev().public());
    let client = pollster::block_on(client.connect(to)).unwrap();
    let at_server = pollster::block_on(server.accept()).unwrap();
    pollster::block_on(echo(WARM_UP, &client, &at_server));
    let counted = measure(|| pollster::block_on(echo(COUNTED, &client, &at_server)));
    // Each batch travels in both directions.
    let most = u64::from(COUNTED) * 2;
    assert!(counted.count_total <= most, "{} in {most} batches", counted.count_total);
    println!("{} allocations in {most} batches of {BATCH} messages", counted.count_total);
}
