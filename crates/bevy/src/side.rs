//! What a server and a client have in common in an app: the systems that poll them, hand them what the frame wrote, and flush them.
//!
//! What they are told and tell is each one's own.

use std::sync::{Mutex, PoisonError};

use bevy_app::prelude::*;
use bevy_ecs::component::Mutable;
use bevy_ecs::prelude::*;
use drumfire::SendError;

use crate::DrumfireSystems;

/// A resource that hears and sends.
pub(crate) trait Side: Resource + Component<Mutability = Mutable> {
    /// What it hears.
    type Heard: Message;
    /// What it sends.
    type Sent: Message + Clone;
    /// What could not be sent.
    type Failed: Message;

    fn poll(&mut self) -> impl Iterator<Item = Self::Heard>;
    fn send(&mut self, message: Self::Sent) -> Result<(), SendError>;
    fn failed(message: Self::Sent, error: SendError) -> Self::Failed;
    fn flush(&mut self);
}

/// Adds the messages and the systems of a side.
pub(crate) fn plug<S: Side>(app: &mut App) {
    app.add_message::<S::Heard>().add_message::<S::Sent>().add_message::<S::Failed>();
    app.add_systems(PreUpdate, receive::<S>.in_set(DrumfireSystems::Receive));
    app.add_systems(PostUpdate, send::<S>.in_set(DrumfireSystems::Send));
}

fn receive<S: Side>(side: Option<ResMut<S>>, mut heard: MessageWriter<S::Heard>) {
    if let Some(mut side) = side {
        heard.write_batch(side.bypass_change_detection().poll());
    }
}

fn send<S: Side>(
    mut side: Option<ResMut<S>>,
    mut messages: MessageReader<S::Sent>,
    mut failed: MessageWriter<S::Failed>,
) {
    let mut side = side.as_mut().map(DetectChangesMut::bypass_change_detection);
    for message in messages.read() {
        let sent = side.as_mut().ok_or(SendError::Closed);
        if let Err(error) = sent.and_then(|side| side.send(message.clone())) {
            failed.write(S::failed(message.clone(), error));
        }
    }
    if let Some(side) = side {
        side.flush();
    }
}

/// Something that may move between threads and is never shared: whoever has the resource mutably has it alone, and nobody waits for
/// the lock, which is there for the type.
#[derive(Debug)]
pub(crate) struct Held<T>(Mutex<T>);

impl<T> Held<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self(Mutex::new(inner))
    }

    pub(crate) fn get(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
