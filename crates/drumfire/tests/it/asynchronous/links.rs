//! Simulated links on the sockets of tasks.

use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire::{ClientConfig, Error, Message, ServerKey, asynchronous};

use super::world::{CHANNEL, Pair, accept, config, message, soon};

fn delayed() -> LinkConfig {
    LinkConfig::default().delay(Delay::Constant(Duration::from_millis(3)))
}

/// Asserts that the links of a server's or a client's connection cannot be changed.
fn is_refused(result: &Result<(), Error>) {
    assert!(matches!(result, Err(Error::Setting { field: "conditioner", .. })), "{result:?}");
}

#[tokio::test]
async fn the_thread_of_a_connection_wakes_for_delayed_datagrams() {
    let client = ClientConfig::default().conditioner(delayed());
    let Pair { server, client, at_server } = Pair::with(config().conditioner(delayed()), &client).await;
    for number in 0..20_u8 {
        client.send(Message::reliable_ordered(CHANNEL, vec![number])).await.unwrap();
        assert_eq!(message(&at_server).await[..], [number]);
        at_server.send(Message::reliable_ordered(CHANNEL, vec![number])).await.unwrap();
        assert_eq!(message(&client).await[..], [number]);
    }
    let stats = server.control().stats();
    assert!(stats.workers[0].inbound_link.delivered > 0 && stats.workers[0].outbound_link.delivered > 0);
    assert_eq!(stats.unexplained(), 0);

    client.set_conditioner(&LinkConfig::wifi()).unwrap();
    is_refused(&client.set_conditioner(&LinkConfig::default().loss(Loss::Random(2.0))));
    is_refused(&at_server.set_conditioner(&LinkConfig::default()));
}

#[tokio::test]
async fn many_connections_over_one_socket_share_its_links() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let (address, key) = (server.local_addr(), ServerKey::dev().public());
    let any = "127.0.0.1:0".parse().unwrap();
    let with_links = ClientConfig::default().conditioner(LinkConfig::default());
    let clients = asynchronous::Client::new(with_links.clone().connections(2).address(any)).unwrap();
    for _ in 0..2 {
        let connection = soon("connect", clients.connect((address, key))).await.unwrap();
        let at_server = accept(&server).await;
        clients.set_conditioner(&delayed()).unwrap();
        connection.send(Message::reliable_ordered(CHANNEL, "late")).await.unwrap();
        assert_eq!(message(&at_server).await[..], b"late"[..]);
    }
    is_refused(&clients.set_conditioner(&LinkConfig::default().corrupt(-1.0)));

    let without = asynchronous::Client::new(ClientConfig::default().connections(2).address(any)).unwrap();
    is_refused(&without.set_conditioner(&LinkConfig::default()));
    let connection = soon("connect", without.connect((address, key))).await.unwrap();
    is_refused(&connection.set_conditioner(&LinkConfig::default()));
}
