//! The wrapper around every call: catches panics, and turns failures into a status and the thread's last error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use crate::client::BufferedClient;
use crate::error::Failure;
use crate::status::DrumfireStatus;
use crate::table::{self, DrumfireClient};

/// The number of times that a panic payload may panic while it is dropped.
const DROPS_MAX: u32 = 4;

thread_local! {
    /// The description of the last failed call of this thread.
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs the body of a call that has no client.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> DrumfireStatus {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(panic)));
    outcome.map_or_else(report, |()| DrumfireStatus::Ok)
}

/// Runs the body of a call on this client if the calling thread owns it. A panic closes the client.
pub(crate) fn with_client(
    client: DrumfireClient,
    work: impl FnOnce(&mut BufferedClient) -> Result<(), Failure>,
) -> DrumfireStatus {
    guarded(|| {
        let shared = table::find(client)?;
        // The lock is never contended: only the owning thread gets here, and no call reenters.
        let work = || work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner));
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let failure = panicked(panic);
            // The last reference drops the client inside the outer `catch_unwind`, because that can panic too.
            let _ = table::remove(client);
            Err(failure)
        })
    })
}

/// Passes the thread's last error to `read`. The text is empty before the first error and while the thread exits.
pub(crate) fn last_error<T>(read: impl Fn(&CStr) -> T) -> T {
    LAST_ERROR.try_with(|last| read(&last.borrow())).unwrap_or_else(|_| read(c""))
}

fn report(failure: Failure) -> DrumfireStatus {
    let mut text = failure.text.into_bytes();
    text.retain(|byte| *byte != 0);
    // While the thread exits, no code can ask for the text any more.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    failure.status
}

fn panicked(panic: Box<dyn Any + Send>) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    drop_payload(panic);
    let text = text.unwrap_or_else(|| "without a message".to_owned());
    Failure::new(DrumfireStatus::Panicked, format!("caught a panic: {text}"))
}

/// Drops the payload of a panic. The drop may panic with another payload, which is dropped too. After [`DROPS_MAX`]
/// panics the payload is leaked.
fn drop_payload(mut panic: Box<dyn Any + Send>) {
    for _ in 0..DROPS_MAX {
        match catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            Ok(()) => return,
            Err(again) => panic = again,
        }
    }
    std::mem::forget(panic);
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::{Client, ClientConfig, ServerKey};

    fn error_text() -> String {
        last_error(|text| text.to_string_lossy().into_owned())
    }

    fn client() -> DrumfireClient {
        let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut client = Client::new(ClientConfig::default()).unwrap();
        let peer = client.connect((address, ServerKey::dev().public())).unwrap();
        table::reserve().unwrap().insert(BufferedClient::new(client, peer))
    }

    #[test]
    fn a_panic_becomes_a_status_and_closes_only_its_client() {
        let (broken, whole) = (client(), client());
        let status = with_client(broken, |_| panic!("the table {} is gone", 7));
        assert_eq!(
            (status, error_text().as_str()),
            (DrumfireStatus::Panicked, "caught a panic: the table 7 is gone")
        );
        assert_eq!(with_client(broken, |_| Ok(())), DrumfireStatus::BadHandle);
        assert_eq!(with_client(whole, |_| Ok(())), DrumfireStatus::Ok);
        assert!(table::remove(whole).is_ok());
    }

    #[test]
    fn a_panic_without_a_client_or_a_message_is_caught() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let status = guarded(|| std::panic::panic_any(Bomb));
        assert_eq!(
            (status, error_text().as_str()),
            (DrumfireStatus::Panicked, "caught a panic: without a message")
        );
    }

    #[test]
    fn each_thread_has_an_error_text_without_nul_bytes() {
        let status = guarded(|| Err(Failure::new(DrumfireStatus::BadText, "a\0b")));
        assert_eq!((status, error_text().as_str()), (DrumfireStatus::BadText, "ab"));
        assert_eq!(std::thread::spawn(error_text).join().unwrap(), "");
    }
}
