//! Fuzzing: every reader, model files, checkpoints, kernel expressions and architectures, on inputs that are slightly wrong.
//!
//! An input may be refused or accepted. It must not panic, overflow the stack, take long, ask for memory that only a header
//! promises, be refused without a sentence, or let a number through that is not finite.
//!
//! ```text
//! cargo run -p mercer-fuzz                      # a million inputs of each target, on all cores: the nightly run
//! cargo run -p mercer-fuzz -- --quick           # two thousand of each, as `cargo test` does
//! cargo run -p mercer-fuzz -- npz kernel --inputs 50000 --seed 7
//! cargo run -p mercer-fuzz -- --replay fuzz/failures/npz-1f2e3d4c.npz
//! ```
//!
//! The dev profile is optimized and keeps the checks of arithmetic that the release profile drops, so it is the one to use.
//!
//! An input is a seed of `fuzz/corpus` (models and checkpoints are made when a run begins, so that they follow the format) with
//! a few changes: bits turned, pieces cut, doubled, put in or taken from another seed, numbers replaced by extreme ones, words
//! of the target's own language put in, values of a header edited. An input that is answered with a sentence not heard before is
//! kept as a further seed of the run. The random numbers follow from `--seed`, which is printed. Failing inputs are saved in
//! `fuzz/failures`; one that was mended moves to `fuzz/corpus/TARGET`, where every run reads it first.
//!
//! | file | content |
//! |---|---|
//! | `mutate` | changes of bytes and texts |
//! | `edit` | changes of the header and the matrices of models and checkpoints |
//! | `targets`, `models` | what is read, and what must hold of the result |
//! | `driver` | the loop, and how a failure is noticed |
//! | `watch` | the largest piece of memory that was asked for |

mod driver;
mod edit;
mod models;
mod mutate;
mod targets;
mod watch;

pub use driver::{Failure, Report, fuzz, replay};
pub use targets::{Input, Target, corpus, targets};
