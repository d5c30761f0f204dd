//! Progress on standard error: a bar on a terminal, lines in a log.

use crate::program::context::say;
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
    /// Nothing but warnings, and not these where it is quiet.
    Nothing { quiet: bool },
}

impl Shown {
    /// A bar on a terminal, lines elsewhere where they are `verbose`, and nothing when `quiet`.
    pub fn new(quiet: bool, verbose: bool) -> Shown {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing { quiet },
            (false, false) if verbose => Shown::Lines(Mutex::default()),
            (false, false) => Shown::Nothing { quiet },
            (false, true) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                let style = "{spinner} {prefix} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}";
                bar.set_style(ProgressStyle::with_template(style).expect("a valid template").progress_chars("━╸ "));
                Shown::Bar(bar, Mutex::default())
            }
        }
    }
}

/// When the present work began, when a line was last written about it, and how its residual fell.
#[derive(Default)]
pub struct Clock {
    what: String,
    began: Option<Instant>,
    written: Option<Instant>,
    /// Seconds, and the logarithm of the residual over what it is to be, after each step.
    path: Vec<[f64; 2]>,
}

impl Clock {
    /// The seconds that `what` has taken, and whether a line about it is due.
    fn tick(&mut self, what: &str) -> (f64, bool) {
        let now = Instant::now();
        if self.what != what {
            *self = Clock { what: what.to_owned(), began: Some(now), ..Clock::default() };
        }
        let due = self.written.is_none_or(|at| now.duration_since(at).as_secs_f64() >= EVERY);
        if due {
            self.written = Some(now);
        }
        (self.began.map_or(0.0, |began| now.duration_since(began).as_secs_f64()), due)
    }
}

impl Shown {
    /// Shows a step; `left` says how many seconds the rest takes, from those so far and the path of residuals.
    fn show(
        &self,
        (what, done, total, note): (&str, usize, usize, &str),
        left: impl Fn(f64, &mut Vec<[f64; 2]>) -> Option<f64>,
    ) {
        let tick = |clock: &Mutex<Clock>| {
            let mut clock = clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (seconds, due) = clock.tick(what);
            (seconds, due, with_time_left(note, seconds, left(seconds, &mut clock.path)))
        };
        match self {
            Shown::Bar(bar, clock) => {
                let (_, _, note) = tick(clock);
                if bar.prefix() != what {
                    bar.set_prefix(what.to_owned());
                    bar.enable_steady_tick(Duration::from_millis(120));
                }
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(note);
            }
            Shown::Lines(clock) => {
                let (seconds, due, note) = tick(clock);
                if due || done == total {
                    say(line(what, done, total, &note, seconds));
                }
            }
            Shown::Nothing { .. } => {}
        }
    }
}

impl Progress for Shown {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        self.show((what, done, total, note), |seconds, _| proportional(seconds, done, total));
    }

    fn iteration(&self, what: &str, done: usize, total: usize, excess: f64, note: &str) {
        self.show((what, done, total, note), |seconds, path| {
            path.push([seconds, excess.ln()]);
            extrapolated(path)
        });
    }

    fn warning(&self, text: &str) {
        let text = format!("warning: {text}");
        match self {
            Shown::Bar(bar, _) => bar.suspend(|| say(text)),
            Shown::Lines(_) | Shown::Nothing { quiet: false } => say(text),
            Shown::Nothing { quiet: true } => {}
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
    format!("{what} {done}/{total}, {}{}{note}", text::seconds(seconds), if note.is_empty() { "" } else { ", " })
}

/// The note, and how long the rest takes where that is known; training says so itself.
fn with_time_left(note: &str, seconds: f64, left: Option<f64>) -> String {
    const TOO_SHORT: f64 = 2.0;
    let Some(left) = left.filter(|_| seconds >= TOO_SHORT && !note.contains("left")) else { return note.to_owned() };
    let left = left.round();
    let left = if left < 120.0 { format!("{left} s") } else { text::seconds(left) };
    format!("{note}{}about {left} left", if note.is_empty() { "" } else { ", " })
}

/// Seconds that the rest takes, where each step takes as long as those before.
fn proportional(seconds: f64, done: usize, total: usize) -> Option<f64> {
    (done > 0 && done < total).then(|| seconds * (total - done) as f64 / done as f64)
}

/// Seconds until the residual is small enough, where its logarithm falls along the line of least squares through the later half of its
/// path. None while that is shorter than six steps, does not fall, or would have to be extended to more than ten times its length.
fn extrapolated(path: &[[f64; 2]]) -> Option<f64> {
    const FEWEST: usize = 6;
    const FURTHEST: f64 = 10.0;
    let recent = &path[path.len() / 2..];
    let (count, last) = (recent.len() as f64, *recent.last()?);
    let mean = |of: usize| recent.iter().map(|point| point[of]).sum::<f64>() / count;
    let (time, height) = (mean(0), mean(1));
    let product = |of: usize| recent.iter().map(|p| (p[0] - time) * (p[of] - [time, height][of])).sum::<f64>();
    let rate = -product(1) / product(0);
    let left = last[1] / rate;
    let known = recent.len() >= FEWEST && rate > 0.0 && left <= FURTHEST * (last[0] - recent[0][0]);
    known.then_some(left.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_work_its_time_and_the_time_left() {
        let shown = |what, done, total, note, seconds| {
            line(what, done, total, &with_time_left(note, seconds, proportional(seconds, done, total)), seconds)
        };
        assert_eq!(shown("rows", 1, 4, "", 10.0), "rows 1/4, 10.00 s, about 30 s left");
        assert_eq!(
            shown("α 3 of 9, cg", 50, 100, "residual 1e-3", 60.0),
            "α 3 of 9, cg 50/100, 60.00 s, residual 1e-3, about 60 s left"
        );
        assert_eq!(shown("krylov", 0, 10, "product 1", 60.0), "krylov 0/10, 60.00 s, product 1");
        assert_eq!(shown("spin", 1, 10, "5 s left", 60.0), "spin 1/10, 60.00 s, 5 s left");
        assert_eq!(shown("rows", 1, 4, "", 1.0), "rows 1/4, 1.00 s");
    }

    /// The path after `steps` steps of two seconds.
    fn path(steps: usize, log_excess: impl Fn(f64) -> f64) -> Vec<[f64; 2]> {
        (1..=steps).map(|i| [2.0 * i as f64, log_excess(i as f64)]).collect()
    }

    #[test]
    fn a_residual_is_extrapolated_to_where_it_is_small_enough() {
        // It falls by a factor of e each step and is small enough after 40: two seconds for each of the rest.
        for steps in [12, 20, 39] {
            let left = extrapolated(&path(steps, |i| 40.0 - i)).unwrap();
            assert!((left - 2.0 * (40 - steps) as f64).abs() < 1e-9, "{steps}: {left}");
        }
        // It falls slowly, and then fast: what counts is how it falls now.
        let left = extrapolated(&path(40, |i| if i < 20.0 { 40.0 } else { 60.0 - i })).unwrap();
        assert!((left - 40.0).abs() < 1e-9, "{left}");
        // It goes up and down on its way, as that of conjugate gradients does.
        let left = extrapolated(&path(30, |i| 40.0 - i + (2.0 * i).sin())).unwrap();
        assert!((left - 20.0).abs() < 3.0, "{left}");
    }

    #[test]
    fn no_time_is_said_where_it_is_not_known() {
        assert_eq!(extrapolated(&[]), None);
        assert_eq!(extrapolated(&path(8, |i| 40.0 - i)), None, "too few steps");
        assert_eq!(extrapolated(&path(30, |_| 3.0)), None, "no progress");
        assert_eq!(extrapolated(&path(30, |i| 3.0 + i)), None, "it rises");
        assert_eq!(extrapolated(&path(30, |i| 1000.0 - i)), None, "too far ahead");
        assert_eq!(extrapolated(&path(30, |_| f64::NAN)), None);
        assert_eq!(extrapolated(&path(30, |i| 10.0 - i)), Some(0.0), "done");
    }

    #[test]
    fn a_line_is_due_when_work_changes_and_then_not_for_a_while() {
        let mut clock = Clock::default();
        assert!(clock.tick("a").1 && !clock.tick("a").1 && clock.tick("b").1 && !clock.tick("b").1);
    }
}
