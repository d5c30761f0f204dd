//! The registry: everything that is fitted, by name. A face (the program, Python) offers what has its line here, with the
//! options that it declares beside its code.

mod posterior;
mod spectra;

pub use posterior::*;
pub use spectra::spectra;
