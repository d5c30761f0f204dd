//! A progress bar on a terminal; nothing in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mercer::Progress;
use std::time::Duration;

/// Shows the steps that the library reports.
pub struct Bar(ProgressBar);

impl Bar {
    /// Hidden when `quiet`, or when standard error is not a terminal.
    pub fn new(quiet: bool) -> Bar {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{spinner} {prefix} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template").progress_chars("━╸ "));
        Bar(bar)
    }
}

impl Progress for Bar {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        if self.0.prefix() != what {
            self.0.set_prefix(what.to_owned());
            self.0.enable_steady_tick(Duration::from_millis(120));
        }
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
        self.0.set_message(note.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
