//! The layers of a plot: the range they need, their legend entries, and their drawing.

use super::frame::Frame;
use super::legend::{Entry, Sample};
use super::marks::{Bars, Cloud, Heat, Line, draw_marks, value_span};
use super::palette::{Map, category, hex};
use super::svg::{Canvas, Rect};
use super::ticks::{Span, shows};

/// One layer of a plot.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A line, perhaps with a band and markers.
    Line(Line),
    /// Points without a line.
    Cloud(Cloud),
    /// One series of bars.
    Bars(Bars),
    /// A matrix or a function of the plane.
    Heat(Heat),
}

impl Layer {
    /// Position in the palette, for those layers that have one.
    pub fn colour(&self) -> Option<usize> {
        match self {
            Layer::Line(Line { colour, .. }) | Layer::Bars(Bars { colour, .. }) => Some(*colour),
            Layer::Cloud(Cloud::One { colour, .. }) => Some(*colour),
            _ => None,
        }
    }

    /// Corners of the boxes that must be visible; NaN where a coordinate does not matter.
    pub fn extent(&self, (x_log, y_log): (bool, bool)) -> Vec<[(f64, f64); 2]> {
        let visible = |(x, y): (f64, f64)| (shows(x, x_log) && shows(y, y_log)).then_some([(x, y); 2]);
        match self {
            Layer::Line(line) => {
                let band = line.points.iter().zip(&line.band);
                let band = band.map(|(&(x, _), &(low, high))| [(x, low), (x, high)]);
                line.points.iter().copied().filter_map(visible).chain(band).collect()
            }
            Layer::Cloud(Cloud::One { points, .. }) => points.iter().copied().filter_map(visible).collect(),
            Layer::Cloud(Cloud::Classes { points, .. }) => points.iter().filter_map(|p| visible((p.0, p.1))).collect(),
            Layer::Cloud(Cloud::Values { points, .. }) => points.iter().filter_map(|p| visible((p.0, p.1))).collect(),
            Layer::Bars(bars) => {
                let ends = |&h: &f64| {
                    let foot = if y_log { h / 2.0 } else { 0.0 };
                    [(f64::NAN, foot.min(h)), (f64::NAN, foot.max(h))]
                };
                bars.heights.iter().map(ends).collect()
            }
            Layer::Heat(heat) => vec![[(heat.x.0, heat.y.0), (heat.x.1, heat.y.1)]],
        }
    }

    /// Entries of the legend.
    pub fn legend(&self, colours: usize) -> Vec<Entry> {
        let paint = |i: usize| hex(category(i, colours));
        let entry = |name: &String, i: usize, sample| match name.is_empty() {
            true => vec![],
            false => vec![(name.clone(), paint(i), sample)],
        };
        match self {
            Layer::Line(l) => entry(&l.name, l.colour, Sample::Line(l.dash, l.markers.then_some(l.colour))),
            Layer::Bars(b) => entry(&b.name, b.colour, Sample::Swatch),
            Layer::Cloud(Cloud::One { name, colour, .. }) => entry(name, *colour, Sample::Dot),
            Layer::Cloud(Cloud::Classes { names, .. }) => {
                let each = names.iter().enumerate();
                each.map(|(i, name)| (name.clone(), hex(category(i, names.len())), Sample::Dot)).collect()
            }
            _ => vec![],
        }
    }

    /// The colour bar: label, range and map.
    pub fn colour_bar(&self) -> Option<(&str, Span, Map)> {
        match self {
            Layer::Heat(heat) if !heat.label.is_empty() => Some((&heat.label, heat.span(), heat.map)),
            Layer::Cloud(Cloud::Values { label, points, map }) if !label.is_empty() => {
                let values: Vec<f64> = points.iter().map(|p| p.2).collect();
                Some((label, value_span(&values, *map), *map))
            }
            _ => None,
        }
    }

    /// Pixels that a legend should not cover.
    pub fn footprint(&self, frame: &Frame, series: usize) -> Vec<(f64, f64)> {
        let at = frame.at;
        match self {
            Layer::Line(line) => {
                let edges = line.points.iter().zip(&line.band).flat_map(|(p, b)| [(p.0, b.0), (p.0, b.1)]);
                let path: Vec<_> = line.points.iter().filter_map(|&p| frame.point(p)).collect();
                let between = path.windows(2).flat_map(|w| sample(w[0], w[1]));
                between.chain(path.iter().copied()).chain(edges.filter_map(|p| frame.point(p))).collect()
            }
            Layer::Cloud(cloud) => cloud.bins().0.into_iter().filter_map(|(p, _)| frame.point(p)).collect(),
            Layer::Bars(bars) => bars.boxes(frame, series).into_iter().flat_map(Rect::samples).collect(),
            Layer::Heat(_) => at.samples().collect(),
        }
    }

    /// Draws the parts that are clipped at the edge of the axes.
    pub fn draw_clipped(&self, c: &mut Canvas, frame: &Frame, colours: usize, series: usize) {
        match self {
            Layer::Line(line) => line.draw(c, frame, &hex(category(line.colour, colours))),
            Layer::Bars(bars) => bars.draw(c, frame, &hex(category(bars.colour, colours)), series),
            Layer::Heat(heat) => heat.draw(c, frame),
            Layer::Cloud(_) => {}
        }
    }

    /// Draws the markers, which are not clipped: one outside the axes is left out.
    pub fn draw_marks(&self, c: &mut Canvas, frame: &Frame, colours: usize) {
        match self {
            Layer::Line(line) if line.markers => {
                let mut shown: Vec<(f64, f64)> = Vec::new();
                for p in line.points.iter().filter_map(|&p| frame.point(p)).filter(|&p| frame.at.holds(p)) {
                    if shown.last().is_none_or(|last| (p.0 - last.0).hypot(p.1 - last.1) > 11.0) {
                        shown.push(p);
                    }
                }
                draw_marks(c, &shown, line.colour, &hex(category(line.colour, colours)));
            }
            Layer::Cloud(cloud) => cloud.draw(c, frame, colours),
            _ => {}
        }
    }
}

/// Points at most six pixels apart from `a` to `b`.
fn sample(a: (f64, f64), b: (f64, f64)) -> Vec<(f64, f64)> {
    let n = (((b.0 - a.0).abs() + (b.1 - a.1).abs()) / 6.0).ceil().clamp(1.0, 2000.0);
    (0..=n as usize).map(|i| i as f64 / n).map(|t| (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1))).collect()
}
