//! Positions of ticks on an axis: steps of 1, 2 or 5 times a power of ten, or decades.

use super::text::in_groups;

/// The marks of one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ticks {
    /// Labelled marks, increasing.
    pub major: Vec<(f64, String)>,
    /// Unlabelled marks between them.
    pub minor: Vec<f64>,
    /// The labels are to be multiplied by ten to this power.
    pub factor: Option<i32>,
}

/// The range of values an axis shows; always finite and not empty, and positive on a logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub lo: f64,
    pub hi: f64,
    pub log: bool,
    /// Whether all values are whole numbers: then marks are, too.
    pub whole: bool,
}

/// Beyond this magnitude (or below its inverse on a logarithmic axis) a value is treated as infinite.
const HUGE: f64 = 1e290;

/// Whether a value can be shown on such an axis.
pub fn shows(value: f64, log: bool) -> bool {
    if log { value > 1.0 / HUGE && value < HUGE } else { value.abs() < HUGE }
}

impl Span {
    /// The range of those values that can be shown on the axis. The range around a constant is widened; without any value it
    /// is [0, 1] or [1, 10].
    pub fn of(values: impl IntoIterator<Item = f64>, log: bool) -> Span {
        let start = (f64::INFINITY, f64::NEG_INFINITY, true);
        let shown = values.into_iter().filter(|&v| shows(v, log));
        let (lo, hi, whole) = shown.fold(start, |(lo, hi, whole), v| (lo.min(v), hi.max(v), whole && v.fract() == 0.0));
        let whole = whole && hi - lo >= 2.0;
        match (lo > hi, log) {
            (true, false) => Span { lo: 0.0, hi: 1.0, log, whole },
            (true, true) => Span { lo: 1.0, hi: 10.0, log, whole },
            (false, true) if hi <= lo * (1.0 + 1e-9) => Span { lo: lo / 3.0, hi: hi * 3.0, log, whole },
            (false, false) if hi - lo <= 1e-9 * hi.abs().max(lo.abs()) || hi - lo < 1.0 / HUGE => {
                let room = if lo.abs() < 1.0 / HUGE { 1.0 } else { lo.abs() / 2.0 };
                Span { lo: lo - room, hi: hi + room, log, whole }
            }
            _ => Span { lo, hi, log, whole },
        }
    }

    /// The range widened by this share on both sides, but not across zero.
    pub fn padded(self, share: f64) -> Span {
        if self.log {
            let room = (self.hi / self.lo).powf(share).min(1e3);
            return Span { lo: self.lo / room, hi: self.hi * room, ..self };
        }
        let room = share * (self.hi - self.lo);
        let lo = if self.lo >= 0.0 { (self.lo - room).max(0.0) } else { self.lo - room };
        let hi = if self.hi <= 0.0 { (self.hi + room).min(0.0) } else { self.hi + room };
        Span { lo, hi, ..self }
    }

    /// The least range that covers both.
    pub fn union(self, other: Span) -> Span {
        Span { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi), whole: self.whole && other.whole, ..self }
    }

    /// Where in [0, 1] a value lies; outside that for values out of range, `None` for those that cannot be shown.
    pub fn share(self, value: f64) -> Option<f64> {
        let place = |v: f64| if self.log { v.log10() } else { v };
        shows(value, self.log).then(|| (place(value) - place(self.lo)) / (place(self.hi) - place(self.lo)))
    }

    /// Marks inside the range: at least three, at most twelve, and as close to `room` as round numbers allow.
    pub fn ticks(self, room: usize) -> Ticks {
        let room = room.clamp(3, 12);
        if self.log { self.log_ticks(room) } else { self.linear_ticks(room) }
    }

    fn linear_ticks(self, room: usize) -> Ticks {
        // Steps 1, 2, 5 grow by at most 2.5, so the largest step that is at most a third of the range
        // gives three to eight marks. Of that one and the finer ones, the finest that fits is taken.
        let third = (self.hi - self.lo) / 3.0 * (1.0 + 1e-12);
        let e = third.log10().floor() as i32;
        let steps = [(5.0, e), (2.0, e), (1.0, e), (5.0, e - 1), (2.0, e - 1)];
        let fits = |&(mantissa, exponent): &(f64, i32)| mantissa * 10f64.powi(exponent) <= third;
        let unit = (self.whole && e < 0).then_some((1.0, 0)); // fewer than three units wide
        let fair = unit.into_iter().chain(steps.into_iter().filter(fits));
        let fair = fair.filter(|&(_, exponent)| !self.whole || exponent >= 0);
        let mut fair: Vec<_> = fair.map(|(m, exponent)| (multiples(self, m, exponent), exponent)).collect();
        let chosen = fair.iter().rposition(|(marks, _)| marks.len() <= room).unwrap_or(0);
        let (best, decimals_at) = fair.swap_remove(chosen);
        let largest = best.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let magnitude = largest.log10().floor() as i32;
        let factor = (largest > 0.0 && !(-3..6).contains(&magnitude)).then_some(magnitude);
        let shift = factor.unwrap_or(0);
        let decimals = (shift - decimals_at).clamp(0, 12) as usize;
        let label = |v: f64| plain(v / 10f64.powi(shift), decimals);
        Ticks { major: best.into_iter().map(|v| (v, label(v))).collect(), minor: Vec::new(), factor }
    }

    fn log_ticks(self, room: usize) -> Ticks {
        let inside = |v: &f64| *v >= self.lo * (1.0 - 1e-12) && *v <= self.hi * (1.0 + 1e-12);
        let (first, last) = (self.lo.log10().floor() as i32, self.hi.log10().ceil() as i32);
        let decades: Vec<i32> = (first..=last).filter(|&k| inside(&10f64.powi(k))).collect();
        if decades.len() >= 3 {
            let strides = [1, 2, 5, 10, 20, 50, 100, 200];
            let count = |stride: i32| decades.iter().filter(|&k| k % stride == 0).count();
            let fair: Vec<i32> = strides.into_iter().filter(|&s| count(s) >= 3).collect();
            let stride = fair.iter().copied().find(|&s| count(s) <= room).unwrap_or(fair[fair.len() - 1]);
            let major = decades.iter().filter(|&k| k % stride == 0);
            let minor: Vec<f64> = if stride > 1 {
                let between = if stride <= 10 { 1 } else { stride / 10 };
                decades.iter().filter(|&k| k % stride != 0 && k % between == 0).map(|&k| 10f64.powi(k)).collect()
            } else {
                (first..last).flat_map(|k| (2..10).map(move |m| f64::from(m) * 10f64.powi(k))).filter(inside).collect()
            };
            let major = major.map(|&k| (10f64.powi(k), format!("10^{{{}}}", signed(k)))).collect();
            return Ticks { major, minor, factor: None };
        }
        let all = |mantissas: &'static [i32]| {
            (first - 1..=last)
                .flat_map(move |k| mantissas.iter().map(move |&m| (m, k)))
                .map(|(m, k)| (m, k, f64::from(m) * 10f64.powi(k)))
        };
        let major: Vec<_> = all(&[1, 2, 5]).filter(|(.., v)| inside(v)).collect();
        if major.len() < 3 {
            return self.linear_ticks(room);
        }
        let minor = all(&[3, 4, 6, 7, 8, 9]).map(|(.., v)| v).filter(inside).collect();
        let label = |(m, k, v): (i32, i32, f64)| match (k, m) {
            (-3..=4, _) => (v, plain(v, (-k).max(0) as usize)),
            (_, 1) => (v, format!("10^{{{}}}", signed(k))),
            _ => (v, format!("{m}×10^{{{}}}", signed(k))),
        };
        Ticks { major: major.into_iter().map(label).collect(), minor, factor: None }
    }
}

/// The multiples of `mantissa · 10^exponent` inside the range.
fn multiples(span: Span, mantissa: f64, exponent: i32) -> Vec<f64> {
    // Dividing by an exact power of ten gives 0.3, where multiplying by 0.1 gives 0.30000000000000004.
    let value =
        |i: f64| if exponent < 0 { i * mantissa / 10f64.powi(-exponent) } else { i * mantissa * 10f64.powi(exponent) };
    let step = mantissa * 10f64.powi(exponent);
    let slack = 1e-9 * (span.hi - span.lo) / step;
    let first = (span.lo / step - slack).ceil();
    let count = ((span.hi / step + slack).floor() - first).clamp(-1.0, 100.0) as i64 + 1;
    (0..count).map(|i| value(first + i as f64) + 0.0).map(|v| v.clamp(span.lo, span.hi)).collect()
}

/// A number with that many decimals, a true minus sign and thin spaces between thousands from 10 000 on.
pub fn plain(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let sign = if value < 0.0 && text.contains(|c: char| ('1'..='9').contains(&c)) { "−" } else { "" };
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    format!("{sign}{}{fraction}", in_groups(whole, "\u{202f}"))
}

/// An integer with a true minus sign.
pub fn signed(k: i32) -> String {
    plain(f64::from(k), 0)
}

/// A range of values along one side of a box.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub span: Span,
    /// The pixels of the ends of the range.
    pub ends: (f64, f64),
}

impl Scale {
    /// The pixel of a value; `None` where it cannot be shown on the axis.
    pub fn px(&self, value: f64) -> Option<f64> {
        self.span.share(value).map(|t| self.ends.0 + t.clamp(-20.0, 20.0) * (self.ends.1 - self.ends.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mercer_engine::rng::Rng;

    fn check(span: Span, room: usize) {
        let ticks = span.ticks(room);
        let at: Vec<f64> = ticks.major.iter().map(|t| t.0).collect();
        assert!((3..=12).contains(&at.len()), "{span:?} at {room}: {at:?}");
        assert!(at.windows(2).all(|pair| pair[0] < pair[1]), "{span:?}: {at:?}");
        let slack = 1e-9 * (span.hi - span.lo);
        assert!(
            at.iter().chain(&ticks.minor).all(|&v| v >= span.lo - slack && v <= span.hi + slack),
            "{span:?}: {at:?}"
        );
        let labels: std::collections::BTreeSet<_> = ticks.major.iter().map(|t| &t.1).collect();
        assert_eq!(labels.len(), at.len(), "{span:?}: {labels:?}");
    }

    #[test]
    fn marks_lie_inside_increase_and_number_three_to_twelve() {
        let mut rng = Rng::new(7);
        for _ in 0..20_000 {
            let size = 10f64.powf(24.0 * rng.uniform() - 12.0);
            let lo = size * (2.0 * rng.uniform() - 1.0);
            let width = size * 10f64.powf(5.0 * rng.uniform() - 4.0);
            let room = 3 + (10.0 * rng.uniform()) as usize;
            check(Span::of([lo, lo + width], false), room);
            check(Span::of([size, size * 10f64.powf(30.0 * rng.uniform().powi(3))], true), room);
        }
    }

    #[test]
    fn extreme_ranges_have_marks_too() {
        let extreme =
            [0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e300, f64::MAX, f64::MIN, f64::NAN, f64::INFINITY, 1e-280, 1e280];
        let pairs = extreme.iter().flat_map(|&a| extreme.map(|b| [a, b]));
        for (pair, log) in pairs.flat_map(|pair| [(pair, false), (pair, true)]) {
            check(Span::of(pair, log), 6);
            check(Span::of(pair, log).padded(0.05), 6);
        }
        assert_eq!(Span::of([], true), Span { lo: 1.0, hi: 10.0, log: true, whole: false });
    }

    #[test]
    fn labels_are_round() {
        let labels = |lo, hi, log| -> Vec<String> {
            Span { lo, hi, log, whole: false }.ticks(6).major.into_iter().map(|t| t.1).collect()
        };
        assert_eq!(labels(0.0, 1.0, false), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(-1.0, 1.0, false), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(labels(0.0, 60_000.0, false)[1], "20\u{202f}000");
        assert_eq!(labels(1e-4, 2.0, true), ["10^{−4}", "10^{−3}", "10^{−2}", "10^{−1}", "10^{0}"]);
        assert_eq!(labels(1e-20, 1.0, true), ["10^{−20}", "10^{−15}", "10^{−10}", "10^{−5}", "10^{0}"]);
        assert_eq!(labels(1.0, 30.0, true), ["1", "2", "5", "10", "20"]);
        assert_eq!(labels(2.0, 3.0, true), ["2.0", "2.2", "2.4", "2.6", "2.8", "3.0"]);
        assert_eq!(Span { lo: 0.0, hi: 3e-7, log: false, whole: false }.ticks(6).factor, Some(-7));
        let whole = |numbers: [f64; 2]| {
            Span::of(numbers, false).padded(0.05).ticks(8).major.into_iter().map(|t| t.1).collect::<Vec<_>>()
        };
        assert_eq!(whole([1.0, 3.0]), ["1", "2", "3"]);
        assert_eq!(whole([1.0, 4.0]), ["1", "2", "3", "4"]);
        assert_eq!(whole([0.0, 60.0]), ["0", "10", "20", "30", "40", "50", "60"]);
        let decades = Span { lo: 1.0, hi: 1000.0, log: true, whole: true }.ticks(8);
        assert_eq!((decades.major.len(), decades.minor.len()), (4, 3 * 8));
    }
}
