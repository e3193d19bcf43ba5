//! A model of two operators: their changes reach all workers in the same order.

use std::collections::VecDeque;
use std::sync::Arc;

use drumfire_proto::Moment;

use super::{Control, ControlState};
use crate::admission::AdmissionControl;
use crate::base::entropy;
use crate::base::sync::models::check;
use crate::base::sync::{Mutex, thread};
use crate::config::server::{Access, ServerConfig};
use crate::credentials::keys::ServerKey;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::Command;

#[test]
fn interleavings_of_two_changes_leave_all_workers_equal() {
    check(|| {
        let config = ServerConfig::new("192.0.2.1:1".parse().unwrap(), ServerKey::dev(), Access::Open);
        let links: Arc<[_]> = (0..2)
            .map(|_| Arc::new(WorkerChannel::new(Arc::default(), crate::worker::channel::tests::LIMITS)))
            .collect();
        let control = Control::new(ControlState {
            links: Arc::clone(&links),
            admission: AdmissionControl::new(&config.admission, Vec::new()),
            config: Arc::new(config.clone()),
            sockets: Vec::new(),
            pool: None,
            now: Box::new(|| Moment::ORIGIN),
            seed_source: Mutex::new(Box::new(entropy::secret)),
            change_lock: Mutex::new(()),
        });
        let (of_other, its_config) = (control.clone(), config.clone());
        let other = thread::spawn(move || of_other.reconfigure(&its_config).unwrap());
        control.reconfigure(&config).unwrap();
        other.join().unwrap();
        let last = |link: &Arc<WorkerChannel>| {
            let mut commands = VecDeque::new();
            link.take_commands(&mut commands);
            match commands.pop_back() {
                Some(Command::Reconfigure(settings)) => settings,
                other => panic!("{other:?}"),
            }
        };
        assert!(Arc::ptr_eq(&last(&links[0]), &last(&links[1])));
    });
}
