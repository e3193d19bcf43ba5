//! The interfaces through which a [`Channel`](crate::Channel) sends values.

use bytes::Bytes;
use drumfire_proto::{ChannelId, PeerId, ReceiptId, SendError, SendOptions};

use super::client::Client;
use super::clients::Clients;
use super::handler::context::Context;
use super::handler::remote::Remote;
use super::server::Server;
use crate::message::typed::SendTo;

impl SendTo<PeerId> for Server {
    fn send_bytes(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.send(to, channel, bytes, options)
    }
}

impl SendTo<PeerId> for Clients {
    fn send_bytes(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.send(to, channel, bytes, options)
    }
}

impl SendTo<()> for Client {
    fn send_bytes(
        &mut self,
        (): (),
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.send(channel, bytes, options)
    }
}

impl SendTo<PeerId> for Context<'_> {
    fn send_bytes(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.send(to, channel, bytes, options)
    }
}

/// Returns no receipt, as [`Remote::send`] does.
impl<N> SendTo<PeerId> for Remote<N> {
    fn send_bytes(
        &mut self,
        to: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.send(to, channel, bytes, options).map(|()| None)
    }
}
