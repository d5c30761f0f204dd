//! The layers of a plot: the range they need, their legend entries, and their drawing.

use super::frame::Frame;
use super::legend::{Entry, Sample};
use super::palette::{Map, PLAIN, category, is_dark};
use super::png;
use super::svg::{Canvas, INK, Rect, Style, num, text_width};
use super::ticks::{Span, plain, shows};

/// A point of the plot, or a pixel.
pub type Point = (f64, f64);

#[derive(Clone, Debug)]
pub struct Layer {
    /// In the legend, or beside the colour bar; an empty name keeps the layer out of both.
    pub name: String,
    /// Position in the palette of a layer of one colour.
    pub colour: Option<usize>,
    /// Position of a layer of one colour in a sequence, 0 to 1, instead of in the palette.
    pub shade: Option<f64>,
    pub map: Map,
    /// The values at the ends of the map; without it those of the layer itself.
    pub scale: Option<(f64, f64)>,
    pub look: Look,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Look {
    Line(Line),
    /// Points of one colour.
    Scatter(Vec<Point>),
    /// Points coloured by class, and the names of the classes.
    Classes(Vec<(Point, usize)>, Vec<String>),
    /// Points coloured by value.
    Values(Vec<(Point, f64)>),
    /// The heights of bars at 0, 1, 2, …, and the number of the series among those drawn side by side.
    Bars(Vec<f64>, usize),
    /// A matrix or a function of the plane.
    Heat(Heat),
}

#[derive(Clone, Debug, Default)]
pub struct Line {
    pub points: Vec<Point>,
    /// Lower and upper end of the shade at each point; empty for none.
    pub band: Vec<(f64, f64)>,
    /// The dash pattern as an SVG attribute; empty for a solid line.
    pub dash: &'static str,
    pub markers: bool,
}

pub const DASHED: &str = r#" stroke-dasharray="6 4""#;
/// Of lines whose colour is beyond the plain ones.
const BROKEN: &str = r#" stroke-dasharray="9 3""#;
pub const DOTTED: &str = r#" stroke-dasharray="1 4""#;

/// Coloured cells, row by row from the top.
#[derive(Clone, Debug)]
pub struct Heat {
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f64>,
    pub x: (f64, f64),
    pub y: (f64, f64),
    /// Cells with enough room show their value.
    pub cells: bool,
}

/// A cloud with more marks than this is thinned, so that the file stays small.
const MOST_MARKS: usize = 20_000;
/// The colour of points whose class has no name.
const NAMELESS: &str = "#bbb";
/// Colours that a map is cut into for a cloud.
const SHADES: usize = 32;

impl Layer {
    /// Corners of the boxes that must be visible; NaN where a coordinate does not matter.
    pub fn extent(&self, (x_log, y_log): (bool, bool)) -> Vec<[Point; 2]> {
        let visible = |&(x, y): &Point| (shows(x, x_log) && shows(y, y_log)).then_some([(x, y); 2]);
        match &self.look {
            Look::Line(Line { points, band, .. }) => {
                let band = points.iter().zip(band).map(|(&(x, _), &(low, high))| [(x, low), (x, high)]);
                points.iter().filter_map(visible).chain(band).collect()
            }
            Look::Scatter(points) => points.iter().filter_map(visible).collect(),
            Look::Classes(points, _) => points.iter().filter_map(|(p, _)| visible(p)).collect(),
            Look::Values(points) => points.iter().filter_map(|(p, _)| visible(p)).collect(),
            Look::Bars(heights, _) => {
                let ends = |&h: &f64| {
                    let foot = if y_log { h / 2.0 } else { 0.0 };
                    [(f64::NAN, foot.min(h)), (f64::NAN, foot.max(h))]
                };
                heights.iter().map(ends).collect()
            }
            Look::Heat(heat) => vec![[(heat.x.0, heat.y.0), (heat.x.1, heat.y.1)]],
        }
    }

    /// The one colour of the layer.
    fn paint(&self) -> String {
        // The light end of the map cannot be read as a line on white.
        const DARK: f64 = 0.85;
        self.shade.map_or_else(|| category(self.colour.unwrap_or(0)), |t| Map::Viridis.hex(DARK * t))
    }

    /// The dash pattern of a line of this layer.
    fn dash(&self, line: &Line) -> &'static str {
        let beyond = self.shade.is_none() && self.colour.is_some_and(|i| i >= PLAIN);
        if beyond && line.dash.is_empty() { BROKEN } else { line.dash }
    }

    pub fn legend(&self) -> Vec<Entry> {
        let sample = match &self.look {
            Look::Line(line) => Sample::Line(self.dash(line), self.colour.filter(|_| line.markers)),
            Look::Bars(..) => Sample::Swatch,
            Look::Scatter(_) => Sample::Dot,
            Look::Classes(_, names) => {
                let entry = |(i, name): (usize, &String)| (name.clone(), category(i), Sample::Dot);
                return names.iter().enumerate().map(entry).collect();
            }
            Look::Values(_) | Look::Heat(_) => return vec![],
        };
        if self.name.is_empty() { vec![] } else { vec![(self.name.clone(), self.paint(), sample)] }
    }

    /// The values that the colours run over, where colours mean values.
    pub fn colour_span(&self) -> Option<Span> {
        let own = match &self.look {
            Look::Heat(heat) => value_span(heat.values.iter().copied(), self.map),
            Look::Values(points) => value_span(points.iter().map(|p| p.1), self.map),
            _ => return None,
        };
        Some(self.scale.map_or(own, |(lo, hi)| Span::of([lo, hi], false)))
    }

    /// The colour bar: label, range and map.
    pub fn colour_bar(&self) -> Option<(&str, Span, Map)> {
        self.colour_span().filter(|_| !self.name.is_empty()).map(|span| (&*self.name, span, self.map))
    }

    /// Pixels that a legend should not cover.
    pub fn footprint(&self, frame: &Frame) -> Vec<Point> {
        match &self.look {
            Look::Line(Line { points, band, .. }) => {
                let edges = points.iter().zip(band).flat_map(|(p, b)| [(p.0, b.0), (p.0, b.1)]);
                let path: Vec<_> = points.iter().filter_map(|&p| frame.point(p)).collect();
                let between = path.windows(2).flat_map(|w| samples(w[0], w[1]));
                between.chain(path.iter().copied()).chain(edges.filter_map(|p| frame.point(p))).collect()
            }
            Look::Bars(heights, place) => bars(heights, *place, frame).into_iter().flat_map(Rect::samples).collect(),
            Look::Heat(_) => frame.at.samples().collect(),
            _ => self.cloud().0.into_iter().filter_map(|(p, _)| frame.point(p)).collect(),
        }
    }

    /// Draws the parts that are clipped at the edge of the axes.
    pub fn draw_clipped(&self, c: &mut Canvas, frame: &Frame) {
        let colour = self.paint();
        match &self.look {
            Look::Line(line @ Line { points, band, .. }) => {
                let dash = self.dash(line);
                c.path(&band_path(points, band, frame), &format!(r#"fill="{colour}" fill-opacity=".18""#));
                let points: Vec<_> = points.iter().map(|&p| frame.point(p)).collect();
                let attributes = r#"fill="none" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round""#;
                c.path(&trace(&points), &format!(r#"{attributes} stroke="{colour}"{dash}"#));
            }
            Look::Bars(heights, place) => {
                for bar in bars(heights, *place, frame) {
                    c.rect(bar, &format!(r#"fill="{colour}""#));
                }
            }
            Look::Heat(heat) => heat.draw(c, frame, self.map, self.colour_span()),
            _ => {}
        }
    }

    /// Draws the markers, which are not clipped: one outside the axes is left out.
    pub fn draw_marks(&self, c: &mut Canvas, frame: &Frame) {
        match &self.look {
            Look::Line(Line { points, markers: true, .. }) => {
                let mut shown: Vec<Point> = Vec::new();
                for p in points.iter().filter_map(|&p| frame.point(p)).filter(|&p| frame.at.holds(p)) {
                    if shown.last().is_none_or(|last| (p.0 - last.0).hypot(p.1 - last.1) > 11.0) {
                        shown.push(p);
                    }
                }
                c.markers(&shown, self.colour.unwrap_or(0), &self.paint());
            }
            Look::Scatter(_) | Look::Classes(..) | Look::Values(_) => self.draw_cloud(c, frame),
            _ => {}
        }
    }

    /// The points of a cloud, each with the number of its colour, and the colours.
    fn cloud(&self) -> (Vec<(Point, usize)>, Vec<String>) {
        match &self.look {
            Look::Scatter(points) => (points.iter().map(|&p| (p, 0)).collect(), vec![self.paint()]),
            Look::Classes(points, names) => {
                let known = (0..names.len()).map(category);
                let colours = known.chain([NAMELESS.to_owned()]).collect();
                (points.iter().map(|&(p, class)| (p, class.min(names.len()))).collect(), colours)
            }
            Look::Values(points) => {
                let span = self.colour_span();
                // Values beyond the scale have the colours of its ends.
                let shade = |v| Some((span?.share(v)?.clamp(0.0, 1.0) * (SHADES - 1) as f64).round() as usize);
                let colours = (0..SHADES).map(|i| self.map.hex(i as f64 / (SHADES - 1) as f64)).collect();
                (points.iter().filter_map(|&(p, v)| Some((p, shade(v)?))).collect(), colours)
            }
            _ => (vec![], vec![]),
        }
    }

    /// Draws those points of a cloud that lie inside the axes.
    fn draw_cloud(&self, c: &mut Canvas, frame: &Frame) {
        let (points, paints) = self.cloud();
        let inside = |(p, bin): (Point, usize)| Some((frame.point(p).filter(|&p| frame.at.holds(p))?, bin));
        let marks: Vec<_> = points.into_iter().filter_map(inside).collect();
        let width = match marks.len() {
            0..200 => 6.5,
            200..2000 => 4.5,
            2000..10_000 => 3.0,
            _ => 2.0,
        };
        // The multiples of the golden ratio modulo 1 are spread evenly, whatever the order of the points. They decide which
        // points are kept and in which round they are drawn, so that no class hides another.
        let golden = |i: usize| f64::from((i as u32).wrapping_mul(0x9e37_79b9)) / 2f64.powi(32);
        let few = marks.len() < 500;
        let kept = (MOST_MARKS as f64 / marks.len().max(1) as f64).min(1.0);
        let rounds = if paints.len() > 1 && marks.len() > 200 { 8 } else { 1 };
        let mut paths = vec![String::new(); rounds * paints.len()];
        for (i, ((x, y), bin)) in marks.into_iter().enumerate().filter(|(i, _)| golden(*i) < kept) {
            let round = (golden(i) / kept * rounds as f64) as usize % rounds;
            paths[round * paints.len() + bin] += &format!("M{} {}h0", num(x), num(y));
        }
        let (rim, width) = (num(width + 1.6), num(width));
        if few {
            c.path(&paths.concat(), &format!(r##"stroke="#fff" stroke-width="{rim}" stroke-linecap="round""##));
        }
        for (path, paint) in paths.iter().zip(paints.iter().cycle()) {
            let look =
                format!(r#"stroke="{paint}" stroke-width="{width}" stroke-opacity=".85" stroke-linecap="round""#);
            c.path(path, &look);
        }
    }
}

/// Points at most six pixels apart from `a` to `b`.
fn samples(a: Point, b: Point) -> Vec<Point> {
    let n = (((b.0 - a.0).abs() + (b.1 - a.1).abs()) / 6.0).ceil().clamp(1.0, 2000.0);
    (0..=n as usize).map(|i| i as f64 / n).map(|t| (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1))).collect()
}

/// The outline of the band around a line, interrupted where an end cannot be shown.
fn band_path(points: &[Point], band: &[(f64, f64)], frame: &Frame) -> String {
    // An interval that goes below zero on a logarithmic axis ends at the lower end of the axis.
    let floor = |v: f64| if frame.y.span.log && v <= 0.0 { frame.y.span.lo } else { v };
    let edge =
        |(&(x, _), &(low, high)): (&Point, &(f64, f64))| Some([frame.point((x, floor(low)))?, frame.point((x, high))?]);
    let edges: Vec<Option<[Point; 2]>> = points.iter().zip(band).map(edge).collect();
    let mut path = String::new();
    for stretch in edges.split(Option::is_none).filter(|s| !s.is_empty()) {
        let stretch: Vec<_> = stretch.iter().flatten().collect();
        let stride = stretch.len().div_ceil(2000);
        let kept: Vec<_> = (0..stretch.len()).filter(|i| i % stride == 0 || i + 1 == stretch.len()).collect();
        let there = kept.iter().map(|&i| stretch[i][0]);
        for (i, (x, y)) in there.chain(kept.iter().rev().map(|&i| stretch[i][1])).enumerate() {
            path += &format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, num(x), num(y));
        }
        path.push('Z');
    }
    path
}

/// The path through the points, broken where one is missing. Of neighbours that share half a pixel
/// across only the first, the lowest, the highest and the last are kept: the image is the same.
fn trace(points: &[Option<Point>]) -> String {
    let mut path = String::new();
    for stretch in points.split(Option::is_none).filter(|s| !s.is_empty()) {
        let stretch: Vec<Point> = stretch.iter().flatten().copied().collect();
        let mut pen = 'M';
        for column in stretch.chunk_by(|a, b| (a.0 * 2.0).floor() == (b.0 * 2.0).floor()) {
            let by_height = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
            let all = || 0..column.len();
            let extremes = [all().min_by(by_height), all().max_by(by_height), Some(column.len() - 1)];
            let mut kept: Vec<usize> = extremes.into_iter().flatten().chain([0]).collect();
            kept.sort_unstable();
            kept.dedup();
            for i in kept {
                path += &format!("{pen}{} {}", num(column[i].0), num(column[i].1));
                pen = 'L';
            }
        }
        if stretch.len() == 1 {
            path += "h0"; // a round cap makes a lone point visible
        }
    }
    path
}

/// The boxes of one series of bars, as far as they can be drawn.
fn bars(heights: &[f64], place: usize, frame: &Frame) -> Vec<Rect> {
    let width = 0.76 / frame.series.max(1) as f64;
    let bar = |(i, &height): (usize, &f64)| {
        let left = i as f64 - 0.38 + width * place as f64;
        let (x0, x1) = (frame.x.px(left)?, frame.x.px(left + width)?);
        let foot = frame.y.px(if frame.y.span.log { frame.y.span.lo } else { 0.0 })?;
        let head = frame.y.px(height)?;
        Some(Rect { x: x0 + 0.5, y: head.min(foot), w: (x1 - x0 - 1.0).max(1.0), h: (foot - head).abs() })
    };
    heights.iter().enumerate().filter_map(bar).collect()
}

impl Heat {
    /// Draws the cells, coloured by `map` over `span`, and their values where there is room.
    fn draw(&self, c: &mut Canvas, frame: &Frame, map: Map, span: Option<Span>) {
        let corners = (frame.point((self.x.0, self.y.0)), frame.point((self.x.1, self.y.1)), span);
        let (Some(a), Some(b), Some(span)) = corners else { return };
        let at = Rect { x: a.0.min(b.0), y: a.1.min(b.1), w: (b.0 - a.0).abs(), h: (b.1 - a.1).abs() };
        let count = self.rows.saturating_mul(self.cols);
        if count == 0 || self.values.len() < count {
            return;
        }
        let levels: Vec<f64> = self.values[..count].iter().map(|&v| span.share(v).unwrap_or(f64::NAN)).collect();
        let (rows, cols, pixels) = pooled(self.rows, self.cols, &levels);
        c.image(at, &png::data_uri(cols, rows, &pixels, map), true);

        let (w, h) = (at.w / self.cols as f64, at.h / self.rows as f64);
        let whole = self.values.iter().all(|v| v.fract() == 0.0 && v.abs() < 1e5);
        let label = |v: f64| plain(v, if whole { 0 } else { 2 });
        let widest = || self.values.iter().map(|&v| text_width(&label(v), 11.0)).fold(0.0, f64::max);
        if !self.cells || w < 12.0 || h < 15.0 || widest() + 6.0 > w {
            return;
        }
        for (i, &value) in self.values[..count].iter().enumerate().filter(|(_, v)| v.is_finite()) {
            let (x, y) = (at.x + w * ((i % self.cols) as f64 + 0.5), at.y + h * ((i / self.cols) as f64 + 0.5) + 4.0);
            let fill = if is_dark(map.at(levels[i])) { "#fff" } else { INK };
            c.text((x, y), &label(value), Style { fill, ..Style::new(11.0).middle() });
        }
    }
}

/// An image of at most 600 pixels a side: larger ones are averaged over blocks. Returns rows, columns and values.
fn pooled(rows: usize, cols: usize, levels: &[f64]) -> (usize, usize, Vec<f64>) {
    let (high, wide) = (rows.div_ceil(600).max(1), cols.div_ceil(600).max(1));
    let (new_rows, new_cols) = (rows.div_ceil(high), cols.div_ceil(wide));
    let mut sums = vec![(0.0, 0.0); new_rows * new_cols];
    for (i, level) in levels.iter().enumerate().filter(|(_, level)| level.is_finite()) {
        let block = &mut sums[i / cols / high * new_cols + i % cols / wide];
        *block = (block.0 + level, block.1 + 1.0);
    }
    (new_rows, new_cols, sums.into_iter().map(|(sum, count)| sum / count).collect()) // 0 / 0: an empty block is NaN
}

/// The range of values of a colour map; symmetric about zero for a diverging map.
fn value_span(values: impl Iterator<Item = f64>, map: Map) -> Span {
    Span::of(values.flat_map(|v| [v, if map == Map::Diverging { -v } else { v }]), false)
}

#[test]
fn pooling_averages_blocks_and_skips_gaps() {
    let levels: Vec<f64> = (0..1200).map(|i| if i < 2 { f64::NAN } else { f64::from(i) }).collect();
    let (rows, cols, pooled) = pooled(1, 1200, &levels);
    assert_eq!((rows, cols, pooled[1], pooled[599]), (1, 600, 2.5, 1198.5));
    assert!(pooled[0].is_nan());
}
