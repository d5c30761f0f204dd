//! The methods that find eigenpairs.

use crate::options::Family;
use crate::spectrum::{Exact, Fourier, Krylov, Nystrom, Positive, Size, neural};
use std::sync::LazyLock;

/// Every method: the exact one first, those that train networks last. Example: [`Entry`](crate::options::Entry).
pub fn spectra() -> &'static Family<Size> {
    static SPECTRA: LazyLock<Family<Size>> = LazyLock::new(|| Family {
        noun: "method",
        entries: [Exact::entry(), Krylov::entry(), Nystrom::entry(), Fourier::entry(), Positive::entry()]
            .into_iter()
            .chain(neural::entries())
            .collect(),
        renamed: &[("finish", "no_finish")],
    });
    &SPECTRA
}
