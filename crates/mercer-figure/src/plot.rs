//! The builder of a plot.

use super::layer::{DASHED, DOTTED, Heat, Layer, Line, Look, Point};
use super::palette::Map;
use super::ticks::Span;

/// One pair of axes and the layers drawn on it. Methods such as [`Plot::dashed`] change the layer that was added last.
///
/// Where two arrays of one layer differ in length, the longer one is cut.
///
/// ```
/// use mercer_figure::Plot;
/// let (j, exact, approximate) = ([1.0, 2.0, 3.0], [1.0, 0.25, 0.11], [0.98, 0.24, 0.1]);
/// let svg = Plot::new("Spectrum")
///     .x_log("index j")
///     .y_log("eigenvalue μ_j")
///     .line("exact", &j, &exact)
///     .dashed()
///     .scatter("Nyström", &j, &approximate)
///     .svg();
/// assert!(svg.starts_with("<svg"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) layers: Vec<Layer>,
    pub(super) size: (f64, f64),
    pub(super) equal: bool,
}

/// Lower and upper end.
pub type Range = (f64, f64);

/// Settings of one axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Axis {
    pub label: String,
    pub log: bool,
    pub range: Option<Range>,
    /// Names of the positions 0, 1, 2, …; empty for a numeric axis.
    pub names: Vec<String>,
    /// Only whole numbers get a tick.
    pub whole: bool,
    /// Values grow downwards.
    pub reversed: bool,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: impl Into<String>) -> Plot {
        Plot { title: title.into(), size: (640.0, 400.0), ..Plot::default() }
    }

    /// Width and height of the whole figure in pixels (default 640 × 400).
    pub fn size(mut self, width: f64, height: f64) -> Plot {
        self.size = (width.clamp(120.0, 1e4), height.clamp(100.0, 1e4));
        self
    }

    /// A linear x axis with this label.
    pub fn x(mut self, label: impl Into<String>) -> Plot {
        (self.x.label, self.x.log) = (label.into(), false);
        self
    }

    /// A linear y axis with this label.
    pub fn y(mut self, label: impl Into<String>) -> Plot {
        (self.y.label, self.y.log) = (label.into(), false);
        self
    }

    /// A logarithmic x axis with this label.
    pub fn x_log(mut self, label: impl Into<String>) -> Plot {
        (self.x.label, self.x.log) = (label.into(), true);
        self
    }

    /// A logarithmic y axis with this label.
    pub fn y_log(mut self, label: impl Into<String>) -> Plot {
        (self.y.label, self.y.log) = (label.into(), true);
        self
    }

    /// The range of the y axis.
    pub fn y_range(mut self, lo: f64, hi: f64) -> Plot {
        self.y.range = Some((lo, hi));
        self
    }

    /// Gives both axes the same number of pixels per unit (linear axes only).
    pub fn equal(mut self) -> Plot {
        self.equal = true;
        self
    }

    /// A line through the points; an empty name keeps it out of the legend.
    pub fn line(self, name: impl Into<String>, xs: &[f64], ys: &[f64]) -> Plot {
        let line = Line { points: pairs(xs, ys).collect(), ..Line::default() };
        self.of_one_colour(name.into(), Look::Line(line))
    }

    /// Shades between `low` and `high` around the last line, point by point.
    pub fn band(self, low: &[f64], high: &[f64]) -> Plot {
        self.last_line(|line| line.band = pairs(low, high).collect())
    }

    /// Marks the points of the last line.
    pub fn markers(self) -> Plot {
        self.last_line(|line| line.markers = true)
    }

    /// Draws the last line dashed.
    pub fn dashed(self) -> Plot {
        self.last_line(|line| line.dash = DASHED)
    }

    /// Draws the last line dotted.
    pub fn dotted(self) -> Plot {
        self.last_line(|line| line.dash = DOTTED)
    }

    /// Gives the last line, scatter or bars the `i`-th colour (from 0).
    pub fn colour(mut self, i: usize) -> Plot {
        if let Some(Layer { colour: Some(colour), .. }) = self.layers.last_mut() {
            *colour = i;
        }
        self
    }

    /// Gives the last line, scatter or bars a colour of a sequence from dark (`t` = 0) to light (1), for a quantity that grows.
    pub fn shade(mut self, t: f64) -> Plot {
        if let Some(layer) = self.layers.last_mut() {
            layer.shade = Some(t);
        }
        self
    }

    /// Points of one colour.
    pub fn scatter(self, name: impl Into<String>, xs: &[f64], ys: &[f64]) -> Plot {
        self.of_one_colour(name.into(), Look::Scatter(pairs(xs, ys).collect()))
    }

    /// Points coloured by class: `classes[i]` is an index into `names`.
    pub fn classes(self, xs: &[f64], ys: &[f64], classes: &[usize], names: &[impl AsRef<str>]) -> Plot {
        let points = pairs(xs, ys).zip(classes.iter().copied()).collect();
        let names = names.iter().map(|n| n.as_ref().to_owned()).collect();
        self.layer(String::new(), None, Look::Classes(points, names))
    }

    /// Points coloured by value, with a colour bar called `label` (none if empty).
    pub fn values(self, label: impl Into<String>, xs: &[f64], ys: &[f64], values: &[f64]) -> Plot {
        let points = pairs(xs, ys).zip(values.iter().copied()).collect();
        self.layer(label.into(), None, Look::Values(points))
    }

    /// One bar for each category; several series of bars stand side by side.
    pub fn bars(mut self, name: impl Into<String>, categories: &[impl AsRef<str>], heights: &[f64]) -> Plot {
        if categories.len() > self.x.names.len() {
            self.x.names = categories.iter().map(|c| c.as_ref().to_owned()).collect();
        }
        let look = Look::Bars(heights.to_vec(), self.bar_series());
        self.of_one_colour(name.into(), look)
    }

    /// A matrix, `values` row by row, the first row on top. The colour bar is called `label`
    /// (none if empty); cells with enough room show their value.
    pub fn matrix(mut self, label: impl Into<String>, [rows, cols]: [usize; 2], values: &[f64]) -> Plot {
        let (x, y) = ((-0.5, cols as f64 - 0.5), (-0.5, rows as f64 - 0.5));
        (self.x.whole, self.y.whole, self.y.reversed) = (true, true, true);
        let heat = Heat { rows, cols, values: values.to_vec(), x, y, cells: true };
        self.layer(label.into(), None, Look::Heat(heat))
    }

    /// A function of the plane sampled on a regular grid that fills `x` × `y`: `values` row by row, the first
    /// row at the smallest y. The colour bar is called `label` (none if empty).
    pub fn field(self, label: impl Into<String>, x: Range, y: Range, shape: [usize; 2], values: &[f64]) -> Plot {
        let [rows, cols] = shape;
        // Image rows go down, y goes up.
        let values = values.chunks(cols.max(1)).take(rows).rev().flatten().copied().collect();
        let heat = Heat { rows, cols, values, x, y, cells: false };
        self.layer(label.into(), None, Look::Heat(heat))
    }

    /// Colours the last values, matrix or field from blue over white (zero) to red.
    pub fn diverging(mut self) -> Plot {
        if let Some(layer) = self.layers.last_mut() {
            layer.map = Map::Diverging;
        }
        self
    }

    /// Fixes the colours of the last values, matrix or field to the range `lo` to `hi`, so that several can be compared; values
    /// beyond it have the colours of its ends.
    pub fn scale(mut self, lo: f64, hi: f64) -> Plot {
        if let Some(layer) = self.layers.last_mut() {
            layer.scale = Some((lo, hi));
        }
        self
    }

    fn last_line(mut self, change: impl FnOnce(&mut Line)) -> Plot {
        if let Some(Layer { look: Look::Line(line), .. }) = self.layers.last_mut() {
            change(line);
        }
        self
    }

    /// Adds a layer of the next colour of the palette.
    fn of_one_colour(self, name: String, look: Look) -> Plot {
        let colour = self.layers.iter().filter(|layer| layer.colour.is_some()).count();
        self.layer(name, Some(colour), look)
    }

    fn layer(mut self, name: String, colour: Option<usize>, look: Look) -> Plot {
        self.layers.push(Layer { name, colour, shade: None, map: Map::Viridis, scale: None, look });
        self
    }

    /// Number of series of bars, which stand side by side.
    pub(super) fn bar_series(&self) -> usize {
        self.layers.iter().filter(|layer| matches!(layer.look, Look::Bars(..))).count()
    }

    /// Whether a matrix or a field fills the axes.
    pub(super) fn is_filled(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.look, Look::Heat(_)))
    }

    /// The values each axis shows, `(x, y)`.
    pub(super) fn spans(&self) -> (Span, Span) {
        let logs = (self.x.log, self.y.log);
        let ends: Vec<Point> = self.layers.iter().flat_map(|layer| layer.extent(logs)).flatten().collect();
        let pad = if self.is_filled() { 0.0 } else { 0.04 };
        let fit = |axis: &Axis, coordinate: fn(&Point) -> f64| match axis.range {
            Some((lo, hi)) => Span::of([lo, hi], axis.log),
            None => Span::of(ends.iter().map(coordinate), axis.log).padded(pad),
        };
        let (mut x, y) = (fit(&self.x, |end| end.0), fit(&self.y, |end| end.1));
        if !self.x.names.is_empty() && !self.is_filled() {
            x = Span { lo: -0.5, hi: self.x.names.len() as f64 - 0.5, log: false, whole: false };
        }
        (x, y)
    }
}

fn pairs(xs: &[f64], ys: &[f64]) -> impl Iterator<Item = Point> {
    xs.iter().copied().zip(ys.iter().copied())
}
