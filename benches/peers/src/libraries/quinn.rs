//! quinn: QUIC with TLS 1.3. Unreliable messages are datagrams. Reliable messages use one stream per connection, each with two bytes
//! of length before it. Settings: a runtime on one thread, one cipher suite (AES-128-GCM or ChaCha20-Poly1305, from ring), and
//! segmentation offload. Datagrams have buffers of 1 MiB, and the answers to one read are one write. Keep-alives of the client are on, which is
//! not the default. Client and server share a fixed certificate.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Answers, Counts, Delivery, Served, TaskClient};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::adapter::{KEEP_ALIVE, Library, Setup, bind, line, version_of};
use crate::tasks::{self, runtime};

/// Connections of a client that share an endpoint.
const PER_SOCKET: usize = 64;

const DATAGRAM_BUFFER_BYTES: usize = 1 << 20;

const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The PKCS #8 encoding of an Ed25519 key up to its 32 bytes (RFC 8410, section 7).
const ED25519_PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Bytes of one read from a stream, at most.
const READ_BYTES: usize = 64 * 1_024;

pub(crate) fn libraries() -> Vec<Library> {
    let quinn = |name, encrypted, is_chacha| Library {
        version: version_of("quinn"),
        encrypted,
        setup: Setup { is_chacha, ..Setup::default() },
        per_socket: PER_SOCKET,
        ..Library::new(name, "quinn", serve, connect)
    };
    vec![quinn("quinn, AES-128", "AES-128", false), quinn("quinn, ChaCha20", "ChaCha20", true)]
}

/// Returns a provider with one cipher suite, and the suite of QUIC's initial packets, which is fixed.
fn provider(setup: &Setup) -> Result<(Arc<CryptoProvider>, rustls::quic::Suite), String> {
    let first = cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = if setup.is_chacha { cipher_suite::TLS13_CHACHA20_POLY1305_SHA256 } else { first };
    let provider = CryptoProvider { cipher_suites: vec![suite], ..default_provider() };
    let initial =
        first.tls13().and_then(rustls::Tls13CipherSuite::quic_suite).ok_or("no suite for initial packets")?;
    Ok((Arc::new(provider), initial))
}

fn transport(keep_alive: Option<Duration>) -> Result<Arc<TransportConfig>, String> {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().map_err(line)?))
        .keep_alive_interval(keep_alive)
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER_BYTES))
        .datagram_send_buffer_size(DATAGRAM_BUFFER_BYTES);
    Ok(Arc::new(transport))
}

/// Returns a certificate and its key. The key is fixed, so that the client can trust it. It protects nothing.
fn certificate() -> Result<(CertificateDer<'static>, PrivatePkcs8KeyDer<'static>), String> {
    let key = [ED25519_PKCS8, &[0x9e; 32]].concat();
    let params = CertificateParams::new(["localhost".to_owned()]).map_err(line)?;
    let signed = params.self_signed(&KeyPair::try_from(&key[..]).map_err(line)?).map_err(line)?;
    Ok((signed.der().clone(), key.into()))
}

fn server_config(setup: &Setup) -> Result<quinn::ServerConfig, String> {
    let ((provider, initial), (certificate, key)) = (provider(setup)?, certificate()?);
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(line)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .map_err(line)?;
    let quic = QuicServerConfig::with_initial(Arc::new(tls), initial).map_err(line)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic));
    config.transport_config(transport(None)?);
    Ok(config)
}

fn client_config(setup: &Setup) -> Result<quinn::ClientConfig, String> {
    let (provider, initial) = provider(setup)?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate()?.0).map_err(line)?;
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(line)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let quic = QuicClientConfig::with_initial(Arc::new(tls), initial).map_err(line)?;
    let mut config = quinn::ClientConfig::new(Arc::new(quic));
    config.transport_config(transport(Some(KEEP_ALIVE))?);
    Ok(config)
}

fn endpoint(runtime: &Runtime, config: Option<quinn::ServerConfig>) -> Result<Endpoint, String> {
    let _guard = runtime.enter();
    Endpoint::new(EndpointConfig::default(), config, bind()?, Arc::new(TokioRuntime)).map_err(line)
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let (runtime, setup) = (runtime()?, *setup);
    let endpoint = endpoint(&runtime, Some(server_config(&setup)?))?;
    let address = endpoint.local_addr().map_err(line)?;
    tasks::serve(&runtime, address, |served| async move {
        while let Some(incoming) = endpoint.accept().await {
            let served = Rc::clone(&served);
            tokio::task::spawn_local(async move {
                // The client reports a connection that is not made, or ends.
                let Ok(connection) = incoming.await else { return };
                if setup.is_reliable {
                    answer_stream(&connection, &setup, &served).await;
                } else {
                    answer_datagrams(&connection, &setup, &served).await;
                }
            });
        }
    })
}

async fn answer_datagrams(connection: &Connection, setup: &Setup, served: &Served) {
    let mut answers = Answers::default();
    while let Ok(message) = connection.read_datagram().await {
        let is_same = setup.answer_bytes == 0;
        let answer = if is_same { message } else { answers.to(&message, setup.answer_bytes).to_vec().into() };
        served.on_echo(connection.send_datagram(answer).is_ok());
    }
}

async fn answer_stream(connection: &Connection, setup: &Setup, served: &Served) {
    let Ok((mut send, mut receive)) = connection.accept_bi().await else { return };
    let (mut answers, mut unread) = (Answers::default(), Vec::new());
    while let Ok(Some(chunk)) = receive.read_chunk(READ_BYTES, true).await {
        let mut outgoing = Vec::new();
        unread.extend_from_slice(&chunk.bytes);
        take_frames(&mut unread, |message| {
            // The first message is empty and only opens the stream.
            if !message.is_empty() {
                served.on_echo(true);
            }
            push_frame(&mut outgoing, answers.to(message, setup.answer_bytes));
        });
        if send.write_all(&outgoing).await.is_err() {
            return;
        }
    }
}

/// Appends a message with two bytes of length before it.
fn push_frame(stream: &mut Vec<u8>, message: &[u8]) {
    // Messages have at most 1,024 bytes.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    stream.extend(length.to_be_bytes());
    stream.extend_from_slice(&message[..length.into()]);
}

/// Removes the complete messages from the bytes of a stream.
fn take_frames(unread: &mut Vec<u8>, mut take: impl FnMut(&[u8])) {
    let mut rest = &unread[..];
    while let Some((length, body)) = rest.split_first_chunk::<2>() {
        let Some(message) = body.get(..u16::from_be_bytes(*length).into()) else { break };
        take(message);
        rest = &body[message.len()..];
    }
    let taken = unread.len() - rest.len();
    unread.drain(..taken);
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let (runtime, is_reliable) = (runtime()?, setup.is_reliable);
    let mut endpoint = endpoint(&runtime, None)?;
    endpoint.set_default_client_config(client_config(setup)?);
    let mut client = TaskClient::new(runtime);
    for _ in 0..count {
        let endpoint = endpoint.clone();
        client.spawn(|delivery, waiting| async move {
            let connecting = match endpoint.connect(server, "localhost") {
                Ok(connecting) => connecting,
                Err(error) => return line(error),
            };
            match connecting.await {
                Ok(connection) if is_reliable => run_stream(&connection, &delivery, waiting).await,
                Ok(connection) => run_datagrams(&connection, &delivery, waiting).await,
                Err(error) => line(error),
            }
        });
    }
    Ok(Box::new(client))
}

/// Sends and receives datagrams until the connection ends, and returns why it ended.
async fn run_datagrams(
    connection: &Connection,
    delivery: &Delivery,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) -> String {
    delivery.on_ready();
    loop {
        tokio::select! {
            received = connection.read_datagram() => match received {
                Ok(message) => delivery.on_message(&message),
                Err(error) => return line(error),
            },
            message = waiting.recv() => {
                let Some(message) = message else { return "the client ended".to_owned() };
                // A datagram without room is lost.
                let _ = connection.send_datagram(message.into());
            }
        }
    }
}

/// Sends and receives on a stream until the connection ends, and returns why it ended.
async fn run_stream(
    connection: &Connection,
    delivery: &Delivery,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) -> String {
    let (mut send, mut receive) = match connection.open_bi().await {
        Ok(streams) => streams,
        Err(error) => return line(error),
    };
    tokio::spawn(async move {
        let mut outgoing = Vec::new();
        // The server sees a stream when something was sent on it.
        push_frame(&mut outgoing, &[]);
        // The receiving half reports why a connection ended.
        while send.write_all(&outgoing).await.is_ok() {
            outgoing.clear();
            let Some(message) = waiting.recv().await else { return };
            push_frame(&mut outgoing, &message);
            while let Ok(message) = waiting.try_recv() {
                push_frame(&mut outgoing, &message);
            }
        }
    });
    let mut unread = Vec::new();
    loop {
        match receive.read_chunk(READ_BYTES, true).await {
            Ok(Some(chunk)) => unread.extend_from_slice(&chunk.bytes),
            Ok(None) => return "the server ended a stream".to_owned(),
            Err(error) => return line(error),
        }
        take_frames(&mut unread, |message| match message {
            [] => delivery.on_ready(),
            message => delivery.on_message(message),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_complete_however_the_stream_is_cut() {
        let (mut stream, mut unread, mut received) = (Vec::new(), Vec::new(), Vec::new());
        let messages = [vec![], vec![1], vec![64; 64]];
        messages.iter().for_each(|message| push_frame(&mut stream, message));
        for piece in stream.chunks(3) {
            unread.extend_from_slice(piece);
            take_frames(&mut unread, |message| received.push(message.to_vec()));
        }
        assert_eq!(received, messages);
    }
}
