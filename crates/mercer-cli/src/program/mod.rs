//! The program itself: its context, files, output, progress, signals, memory and ranks.

pub mod context;
pub mod distributed;
pub mod files;
pub mod memory;
pub mod output;
pub mod progress;
pub mod signals;
pub mod usage;
