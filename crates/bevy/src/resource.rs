//! The systems that the server and the client share: they poll the resource, send the messages of the frame, and flush.

use std::sync::{Mutex, PoisonError};

use bevy_app::prelude::*;
use bevy_ecs::component::Mutable;
use bevy_ecs::prelude::*;
use drumfire::SendError;

use crate::DrumfireSystems;

/// A server or client resource.
pub(crate) trait NetworkResource: Resource + Component<Mutability = Mutable> {
    /// An event of a connection.
    type Event: Message;
    /// A message to the other side.
    type Outgoing: Message + Clone;
    /// A message that could not be sent.
    type Failed: Message;

    fn poll(&mut self) -> impl Iterator<Item = Self::Event>;
    fn send(&mut self, message: Self::Outgoing) -> Result<(), SendError>;
    fn failed(message: Self::Outgoing, error: SendError) -> Self::Failed;
    fn flush(&mut self);
}

/// Registers the message types and systems of a resource.
pub(crate) fn register<R: NetworkResource>(app: &mut App) {
    app.add_message::<R::Event>().add_message::<R::Outgoing>().add_message::<R::Failed>();
    app.add_systems(PreUpdate, receive::<R>.in_set(DrumfireSystems::Receive));
    app.add_systems(PostUpdate, send::<R>.in_set(DrumfireSystems::Send));
}

fn receive<R: NetworkResource>(resource: Option<ResMut<R>>, mut events: MessageWriter<R::Event>) {
    if let Some(mut resource) = resource {
        // A poll in every frame would mark the resource as changed in every frame.
        events.write_batch(resource.bypass_change_detection().poll());
    }
}

fn send<R: NetworkResource>(
    mut resource: Option<ResMut<R>>,
    mut messages: MessageReader<R::Outgoing>,
    mut failed: MessageWriter<R::Failed>,
) {
    let mut resource = resource.as_mut().map(DetectChangesMut::bypass_change_detection);
    for message in messages.read() {
        let sent = resource.as_mut().ok_or(SendError::Closed);
        if let Err(error) = sent.and_then(|resource| resource.send(message.clone())) {
            failed.write(R::failed(message.clone(), error));
        }
    }
    if let Some(resource) = resource {
        resource.flush();
    }
}

/// Makes a value `Sync`, as Bevy requires of a resource. Only `&mut self` gives access, so the mutex is never locked.
#[derive(Debug)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
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
