//! Progress on standard error: a bar on a terminal, lines in a log.

use crate::context::say;
use crate::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mercer::Progress;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Seconds between two lines about the same work.
const EVERY: f64 = 10.0;

/// Shows the steps that the library reports.
pub enum Shown {
    /// On a terminal.
    Bar(ProgressBar, Mutex<Clock>),
    /// Elsewhere, where lines were asked for.
    Lines(Mutex<Clock>),
    Nothing,
}

impl Shown {
    /// A bar on a terminal, lines elsewhere where they are `verbose`, and nothing when `quiet`.
    pub fn new(quiet: bool, verbose: bool) -> Shown {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, false) if verbose => Shown::Lines(Mutex::default()),
            (false, false) => Shown::Nothing,
            (false, true) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                let style = "{spinner} {prefix} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}";
                bar.set_style(ProgressStyle::with_template(style).expect("a valid template").progress_chars("━╸ "));
                Shown::Bar(bar, Mutex::default())
            }
        }
    }
}

/// When the present work began and when a line was last written about it.
#[derive(Default)]
pub struct Clock {
    what: String,
    began: Option<Instant>,
    written: Option<Instant>,
}

impl Clock {
    /// The seconds that `what` has taken, and whether a line about it is due.
    fn tick(&mut self, what: &str) -> (f64, bool) {
        let now = Instant::now();
        if self.what != what {
            *self = Clock { what: what.to_owned(), began: Some(now), written: None };
        }
        let due = self.written.is_none_or(|at| now.duration_since(at).as_secs_f64() >= EVERY);
        if due {
            self.written = Some(now);
        }
        (self.began.map_or(0.0, |began| now.duration_since(began).as_secs_f64()), due)
    }
}

impl Progress for Shown {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        let tick = |clock: &Mutex<Clock>| clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner).tick(what);
        match self {
            Shown::Bar(bar, clock) => {
                let (seconds, _) = tick(clock);
                if bar.prefix() != what {
                    bar.set_prefix(what.to_owned());
                    bar.enable_steady_tick(Duration::from_millis(120));
                }
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(with_time_left(note, seconds, done, total));
            }
            Shown::Lines(clock) => {
                let (seconds, due) = tick(clock);
                if due || done == total {
                    say(line(what, done, total, note, seconds));
                }
            }
            Shown::Nothing => {}
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Shown::Bar(bar, _) = self {
            bar.finish_and_clear();
        }
    }
}

/// One line of a log.
fn line(what: &str, done: usize, total: usize, note: &str, seconds: f64) -> String {
    let note = with_time_left(note, seconds, done, total);
    format!("{what} {done}/{total}, {}{}{note}", text::seconds(seconds), if note.is_empty() { "" } else { ", " })
}

/// The note, and how long the rest takes where each step takes as long as those before; training says so itself.
fn with_time_left(note: &str, seconds: f64, done: usize, total: usize) -> String {
    const TOO_SHORT: f64 = 2.0;
    if note.contains("left") || done == 0 || done >= total || seconds < TOO_SHORT {
        return note.to_owned();
    }
    let left = (seconds * (total - done) as f64 / done as f64).round();
    let left = if left < 120.0 { format!("{left} s") } else { text::seconds(left) };
    format!("{note}{}about {left} left", if note.is_empty() { "" } else { ", " })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_work_its_time_and_the_time_left() {
        assert_eq!(line("rows", 1, 4, "", 10.0), "rows 1/4, 10.00 s, about 30 s left");
        assert_eq!(
            line("α 3 of 9, cg", 50, 100, "residual 1e-3", 60.0),
            "α 3 of 9, cg 50/100, 60.00 s, residual 1e-3, about 60 s left"
        );
        assert_eq!(line("krylov", 0, 10, "product 1", 60.0), "krylov 0/10, 60.00 s, product 1");
        assert_eq!(line("spin", 1, 10, "5 s left", 60.0), "spin 1/10, 60.00 s, 5 s left");
    }

    #[test]
    fn a_line_is_due_when_work_changes_and_then_not_for_a_while() {
        let mut clock = Clock::default();
        assert!(clock.tick("a").1 && !clock.tick("a").1 && clock.tick("b").1 && !clock.tick("b").1);
    }
}
