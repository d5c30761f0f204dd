//! A decoder whose panics are errors of the file, without a message of their own.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use crate::{Error, Result};

/// What `decode` returns. The decoder returns errors for what it checks, but it asserts and slices on some corrupt pages.
pub(super) fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    silently(|| catch_unwind(AssertUnwindSafe(decode)))
        .unwrap_or_else(|_| Err(Error::file(path, "is a corrupt parquet file: its pages cannot be decoded")))
}

thread_local! {
    /// Whether a panic of this thread is caught, so that it needs no message.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What `work` returns; a panic within it prints nothing.
fn silently<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CAUGHT.get() {
                usual(info);
            }
        }));
    });
    let before = CAUGHT.replace(true);
    let result = work();
    CAUGHT.set(before);
    result
}
