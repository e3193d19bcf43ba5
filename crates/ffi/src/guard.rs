//! What stands around every call: panics are caught here, and failures become a status and the thread's last error.
//!
//! It knows no client's insides.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use crate::error::Failure;
use crate::held::Held;
use crate::status::DrumfireStatus;
use crate::table::{self, DrumfireClient};

/// How often something that was thrown may throw while it is dropped.
const DROPS_MAX: u32 = 4;

thread_local! {
    /// What the last call of this thread that failed had to say.
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Does the work of a call that has no client.
pub(crate) fn alone(work: impl FnOnce() -> Result<(), Failure>) -> DrumfireStatus {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(panic)));
    outcome.map_or_else(report, |()| DrumfireStatus::Ok)
}

/// Does the work of a call on this client, if the caller may; a panic closes it.
pub(crate) fn with(
    client: DrumfireClient,
    work: impl FnOnce(&mut Held) -> Result<(), Failure>,
) -> DrumfireStatus {
    alone(|| {
        let held = table::find(client)?;
        // Only its own thread comes here, and no call calls back: nobody waits for this lock.
        let work = || work(&mut held.lock().unwrap_or_else(PoisonError::into_inner));
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let failure = panicked(panic);
            // What is left of it goes with the last name of it, below the outer guard.
            let _ = table::remove(client);
            Err(failure)
        })
    })
}

/// Gives the thread's last error to look at; an empty text before the first, and while the thread ends.
pub(crate) fn last_error<T>(look: impl Fn(&CStr) -> T) -> T {
    LAST_ERROR.try_with(|last| look(&last.borrow())).unwrap_or_else(|_| look(c""))
}

fn report(failure: Failure) -> DrumfireStatus {
    let mut text = failure.text.into_bytes();
    text.retain(|byte| *byte != 0);
    // A thread that ends has nobody left who asks.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    failure.status
}

fn panicked(panic: Box<dyn Any + Send>) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let_go(panic);
    let text = text.unwrap_or_else(|| "it says nothing".to_owned());
    Failure::new(DrumfireStatus::Panicked, format!("caught a panic: {text}"))
}

/// Drops what was thrown, which may throw again, and that again; what still does is kept for ever.
fn let_go(mut panic: Box<dyn Any + Send>) {
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
    use drumfire::Client;

    fn said() -> String {
        last_error(|text| text.to_string_lossy().into_owned())
    }

    fn client() -> DrumfireClient {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        table::insert(Held::new(Client::connect_dev(nobody).unwrap())).unwrap()
    }

    #[test]
    fn a_panic_becomes_a_status_and_closes_its_client_alone() {
        let (broken, whole) = (client(), client());
        let status = with(broken, |_| panic!("the table {} is gone", 7));
        assert_eq!(
            (status, said().as_str()),
            (DrumfireStatus::Panicked, "caught a panic: the table 7 is gone")
        );
        assert_eq!(with(broken, |_| Ok(())), DrumfireStatus::BadHandle);
        assert_eq!(with(whole, |_| Ok(())), DrumfireStatus::Ok);
        assert!(table::remove(whole).is_ok());
    }

    #[test]
    fn a_panic_without_a_client_or_a_text_is_caught_too() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let status = alone(|| std::panic::panic_any(Bomb));
        assert_eq!((status, said().as_str()), (DrumfireStatus::Panicked, "caught a panic: it says nothing"));
    }

    #[test]
    fn a_text_with_a_nul_byte_is_told_without_it_and_each_thread_has_its_own() {
        let status = alone(|| Err(Failure::new(DrumfireStatus::BadText, "a\0b")));
        assert_eq!((status, said().as_str()), (DrumfireStatus::BadText, "ab"));
        assert_eq!(std::thread::spawn(said).join().unwrap(), "");
    }
}
