//! The axes of a plot, and the margins around them.

use super::layer::Layer;
use super::legend::{
    Corner, Entry, Place, colour_bar_width, draw_colour_bar, draw_legend, legend_corner, legend_size, shorten,
};
use super::plot::{Axis, Plot};
use super::svg::{AXIS, Canvas, FAINT, Rect, Style, num, text_width};
use super::ticks::{Scale, Span, Ticks, plain, signed};

pub const TICK_SIZE: f64 = 11.0;
pub const LABEL_SIZE: f64 = 12.5;

/// The box of the axes, the two scales along it, and what layers share.
pub struct Frame {
    pub at: Rect,
    pub x: Scale,
    pub y: Scale,
    /// Number of series of bars that stand side by side.
    pub series: usize,
}

impl Frame {
    /// The pixel of a point; `None` where a coordinate cannot be shown on its axis.
    pub fn point(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.x.px(x)?, self.y.px(y)?))
    }
}

/// Which texts are written around the axes; a grid writes some of them once for all panels.
#[derive(Clone, Copy)]
pub struct Show {
    /// Tick labels below.
    pub x_ticks: bool,
    /// Tick labels at the left.
    pub y_ticks: bool,
    /// Names of the axes.
    pub labels: bool,
    /// Font size of the title.
    pub title: f64,
}

/// Room around the axes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Margins {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Plot {
    /// The figure as a self-contained SVG document.
    pub fn svg(&self) -> String {
        let show = Show { x_ticks: true, y_ticks: true, labels: true, title: 15.0 };
        let (w, h) = self.size;
        let inner = |m: Margins| Rect {
            x: m.left,
            y: m.top,
            w: (w - m.left - m.right).max(30.0),
            h: (h - m.top - m.bottom).max(30.0),
        };
        // The margins depend on the tick labels, and these on the margins: two passes are enough.
        let spans = self.spans();
        let rough = inner(self.margins(spans, (w - 80.0, h - 80.0), show, Place::Nowhere));
        let at = inner(self.margins(spans, (rough.w, rough.h), show, Place::Nowhere));
        let place = self.legend_place(&self.frame(spans, at));
        let margins = self.margins(spans, (at.w, at.h), show, place);
        let at = self.frame(spans, inner(margins)).at;
        let mut canvas = Canvas::default();
        self.draw(&mut canvas, spans, at, show, place);
        canvas.finish(at.right() + margins.right, at.bottom() + margins.bottom, &self.title)
    }

    pub(super) fn legend_entries(&self) -> Vec<Entry> {
        self.layers.iter().flat_map(Layer::legend).collect()
    }

    /// Draws the plot with its axes on the box; the panels of a grid have no legend of their own.
    pub(super) fn draw(&self, c: &mut Canvas, spans: (Span, Span), at: Rect, show: Show, place: Place) {
        let frame = self.frame(spans, at);
        let at = frame.at;
        let (x_ticks, y_ticks) = self.ticks((frame.x.span, frame.y.span), (at.w, at.h));
        let title = Style { bold: true, ..Style::new(fit_title(&self.title, show.title, at.w)) };
        c.text((at.x, at.y - 10.0), &self.title, title);
        self.draw_grid(c, &frame, &x_ticks, &y_ticks);
        c.clipped(at, |c| self.layers.iter().for_each(|layer| layer.draw_clipped(c, &frame)));
        self.draw_axes(c, &frame, &x_ticks, &y_ticks, show);
        self.layers.iter().for_each(|layer| layer.draw_marks(c, &frame));
        let mut right = at.right() + 14.0;
        if let Some((label, span, map)) = self.layers.iter().find_map(Layer::colour_bar) {
            right += draw_colour_bar(c, Rect { x: right, y: at.y, w: 12.0, h: at.h }, label, span, map);
        }
        let entries = self.legend_entries();
        match place {
            Place::Nowhere => {}
            Place::Outside => draw_legend(c, (right, at.y), &entries, at.h),
            Place::In(corner) => {
                let corner = legend_corner(corner, at, legend_size(&entries));
                draw_legend(c, (corner.x, corner.y), &entries, f64::INFINITY);
            }
        }
    }

    /// The axes on a box. Where both must have the same number of pixels per unit, the box shrinks, to 40 % at most; then
    /// the ranges grow.
    fn frame(&self, (mut x, mut y): (Span, Span), mut at: Rect) -> Frame {
        if self.equal && !x.log && !y.log {
            let unit = (at.w / (x.hi - x.lo)).min(at.h / (y.hi - y.lo));
            at.w = (unit * (x.hi - x.lo)).max(0.4 * at.w);
            at.h = (unit * (y.hi - y.lo)).max(0.4 * at.h);
            let widen = |s: Span, length: f64| {
                let (middle, half) = ((s.lo + s.hi) / 2.0, length / unit / 2.0);
                Span { lo: middle - half, hi: middle + half, ..s }
            };
            (x, y) = (widen(x, at.w), widen(y, at.h));
        }
        let up = if self.y.reversed { (at.y, at.bottom()) } else { (at.bottom(), at.y) };
        let (x, y) = (Scale { span: x, ends: (at.x, at.right()) }, Scale { span: y, ends: up });
        Frame { at, x, y, series: self.bar_series() }
    }

    /// The ticks of both axes on a box of that size.
    pub(super) fn ticks(&self, (x, y): (Span, Span), (w, h): (f64, f64)) -> (Ticks, Ticks) {
        let across = |room: usize| axis_ticks(&self.x, x, room);
        let crowded = |t: &Ticks| widest(t) + 14.0 > w / t.major.len().max(1) as f64;
        let room = (3..=((w / 52.0) as usize).clamp(3, 10)).rev().find(|&room| !crowded(&across(room)));
        let mut x_ticks = across(room.unwrap_or(3));
        let width = if self.slanted(&x_ticks, w) { 17.0 } else { widest(&x_ticks) + 8.0 };
        let mut y_ticks = axis_ticks(&self.y, y, ((h / 34.0) as usize).clamp(3, 10));
        thin(&mut x_ticks, w / width);
        thin(&mut y_ticks, h / 13.0);
        (x_ticks, y_ticks)
    }

    /// Whether the names along x do not fit side by side and must be slanted.
    fn slanted(&self, ticks: &Ticks, width: f64) -> bool {
        !self.x.names.is_empty() && widest(ticks) + 6.0 > width / ticks.major.len().max(1) as f64
    }

    /// The height of the tick labels below axes of that width.
    fn x_room(&self, ticks: &Ticks, width: f64) -> f64 {
        if self.slanted(ticks, width) { 14.0 + 0.6 * widest(ticks).min(160.0) } else { 20.0 }
    }

    /// The room around axes of that size.
    pub(super) fn margins(&self, spans: (Span, Span), (w, h): (f64, f64), show: Show, place: Place) -> Margins {
        let (x_ticks, y_ticks) = self.ticks(spans, (w, h));
        let given = |shown: bool, room: f64| if shown { room } else { 0.0 };
        let slanted = self.slanted(&x_ticks, w);
        let x_room = self.x_room(&x_ticks, w);
        let last = x_ticks.major.last().map_or(0.0, |t| text_width(&t.1, TICK_SIZE) / 2.0);
        let mut right = if slanted { 12.0 } else { last.max(12.0) };
        if let Some((label, span, _)) = self.layers.iter().find_map(Layer::colour_bar) {
            right = 14.0 + colour_bar_width(label, span) + 6.0;
        }
        if place == Place::Outside {
            right += 14.0 + legend_size(&self.legend_entries()).0;
        }
        // The first slanted name reaches to the left of the axis.
        let first = x_ticks.major.first().map_or(0.0, |t| text_width(&t.1, TICK_SIZE).min(160.0));
        let overhang = if slanted { 0.88 * first - w / (2.0 * x_ticks.major.len() as f64) + 6.0 } else { 0.0 };
        let left = 8.0
            + given(show.y_ticks, widest(&y_ticks) + 6.0)
            + given(show.labels && !with_factor(&self.y.label, &y_ticks).is_empty(), 20.0);
        Margins {
            left: left.max(overhang),
            right,
            top: 10.0 + given(!self.title.is_empty(), show.title + 7.0),
            bottom: 6.0
                + given(show.x_ticks, x_room)
                + given(show.labels && !with_factor(&self.x.label, &x_ticks).is_empty(), 19.0),
        }
    }

    fn draw_grid(&self, c: &mut Canvas, frame: &Frame, x: &Ticks, y: &Ticks) {
        if self.is_filled() {
            return;
        }
        let [left, right, top, floor] = frame.at.edges().map(num);
        let major = |(_, length): &(String, u8)| *length == MAJOR;
        let down = self.x_marks(frame, x).into_iter().filter(major).map(|(px, _)| format!("M{px} {top}V{floor}"));
        let across = marks(&frame.y, y).into_iter().filter(major).map(|(px, _)| format!("M{left} {px}H{right}"));
        c.path(&down.chain(across).collect::<String>(), &format!(r#"stroke="{FAINT}" fill="none""#));
    }

    /// The marks along x; names have none.
    fn x_marks(&self, frame: &Frame, ticks: &Ticks) -> Vec<(String, u8)> {
        if self.x.names.is_empty() { marks(&frame.x, ticks) } else { vec![] }
    }

    fn draw_axes(&self, c: &mut Canvas, frame: &Frame, x: &Ticks, y: &Ticks, show: Show) {
        let (at, floor) = (frame.at, frame.at.bottom());
        let [left, right, top, bottom] = at.edges().map(num);
        let stroke = format!(r#"stroke="{AXIS}" fill="none""#);
        let (x_label, y_label) = (with_factor(&self.x.label, x), with_factor(&self.y.label, y));

        let down = self.x_marks(frame, x).into_iter().map(|(px, length)| format!("M{px} {bottom}v{length}"));
        c.path(&format!("M{left} {bottom}H{right}{}", down.collect::<String>()), &stroke);
        let slanted = self.slanted(x, at.w);
        for (v, label) in x.major.iter().filter(|_| show.x_ticks) {
            match frame.x.px(*v) {
                Some(px) if slanted => {
                    let style = Style { turn: -35.0, ..Style::new(TICK_SIZE).end() };
                    c.text((px + 4.0, floor + 12.0), label, style);
                }
                Some(px) => c.text((px, floor + 17.0), label, Style::new(TICK_SIZE).middle()),
                None => {}
            }
        }
        if show.labels {
            let style = Style::new(fit(&x_label, LABEL_SIZE, at.w)).middle();
            c.text((at.x + at.w / 2.0, floor + self.x_room(x, at.w) + 16.0), &x_label, style);
        }

        let leftwards = marks(&frame.y, y).into_iter().map(|(px, length)| format!("M{left} {px}h-{length}"));
        c.path(&format!("M{left} {top}V{bottom}{}", leftwards.collect::<String>()), &stroke);
        for (v, label) in y.major.iter().filter(|_| show.y_ticks) {
            if let Some(px) = frame.y.px(*v) {
                c.text((at.x - 8.0, px + 4.0), label, Style::new(TICK_SIZE).end());
            }
        }
        if show.labels {
            let style = Style { turn: -90.0, ..Style::new(fit(&y_label, LABEL_SIZE, at.h)).middle() };
            c.text((at.x - 8.0 - widest(y) - 10.0, at.y + at.h / 2.0), &y_label, style);
        }
    }

    /// The first corner free of data, or outside.
    fn legend_place(&self, frame: &Frame) -> Place {
        let entries = self.legend_entries();
        let ((w, h), at) = (legend_size(&entries), frame.at);
        if entries.is_empty() {
            return Place::Nowhere;
        }
        if entries.len() > 6 || w > at.w * 0.6 || h > at.h * 0.6 {
            return Place::Outside;
        }
        let taken: Vec<_> = self.layers.iter().flat_map(|layer| layer.footprint(frame)).collect();
        let is_free = |corner: &Corner| {
            let legend = legend_corner(*corner, at, (w, h)).grown(6.0);
            !taken.iter().any(|&p| legend.holds(p))
        };
        let corners = [(true, false), (false, false), (true, true), (false, true)];
        corners.into_iter().find(is_free).map_or(Place::Outside, Place::In)
    }
}

/// The length of a labelled mark in pixels.
const MAJOR: u8 = 5;

/// The pixel of every mark, as text, and its length.
fn marks(scale: &Scale, ticks: &Ticks) -> Vec<(String, u8)> {
    let all = ticks.major.iter().map(|t| (t.0, MAJOR)).chain(ticks.minor.iter().map(|&v| (v, 3)));
    all.filter_map(|(v, length)| Some((num(scale.px(v)?), length))).collect()
}

fn axis_ticks(axis: &Axis, span: Span, room: usize) -> Ticks {
    if !axis.names.is_empty() {
        let named = axis.names.iter().enumerate().map(|(i, name)| (i as f64, shorten(name, 28)));
        return Ticks { major: named.collect(), ..Ticks::default() };
    }
    let mut ticks = span.ticks(room);
    if axis.whole {
        ticks.major.retain(|t| t.0.fract() == 0.0);
        ticks.major.iter_mut().for_each(|t| t.1 = plain(t.0, 0));
    }
    ticks
}

/// Removes labels until at most that many are left, but always one.
fn thin(ticks: &mut Ticks, most: f64) {
    let stride = (ticks.major.len() as f64 / most.max(1.0)).ceil().max(1.0) as usize;
    ticks.major.iter_mut().enumerate().filter(|(i, _)| i % stride != 0).for_each(|(_, t)| t.1.clear());
}

/// The width of the longest label.
pub fn widest(ticks: &Ticks) -> f64 {
    1.12 * ticks.major.iter().map(|t| text_width(&t.1, TICK_SIZE)).fold(0.0, f64::max) // some fonts are wider
}

/// The name of an axis, with the power of ten that its labels are to be multiplied by.
pub fn with_factor(label: &str, ticks: &Ticks) -> String {
    ticks.factor.map_or(label.to_owned(), |k| format!("{label}  ×10^{{{}}}", signed(k)).trim().to_owned())
}

/// The font size, made smaller where the text would be longer than `room`, but never unreadable.
pub fn fit(text: &str, size: f64, room: f64) -> f64 {
    (size * room / text_width(text, size).max(1.0)).clamp(9.0, size)
}

/// The same for a title, whose bold letters are wider.
pub fn fit_title(text: &str, size: f64, room: f64) -> f64 {
    const BOLD: f64 = 1.22;
    fit(text, size, room / BOLD)
}
