//! The registry: everything that is fitted, by name. A face (the program, Python) offers what has its line here, with the
//! options that it declares beside its code.

mod embed;
mod posterior;
mod process;
mod regress;
mod spectra;

pub use embed::embeddings;
pub use posterior::*;
pub use process::processes;
pub use regress::{Source, regressions};
pub use spectra::spectra;
