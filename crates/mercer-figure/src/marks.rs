//! Drawing of lines, clouds of points, bars and heat maps.

use super::frame::Frame;
use super::palette::{Map, category, hex, is_dark};
use super::png;
use super::svg::{Canvas, INK, Rect, Style, num, text_width};
use super::ticks::{Span, plain};

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Lower and upper end of the shade at each point; empty for none.
    pub band: Vec<(f64, f64)>,
    pub dash: Dash,
    pub markers: bool,
    pub colour: usize,
}

/// Points of one colour, coloured by class, or coloured by value.
#[derive(Clone, Debug)]
pub enum Cloud {
    One { name: String, points: Vec<(f64, f64)>, colour: usize },
    Classes { points: Vec<(f64, f64, usize)>, names: Vec<String> },
    Values { label: String, points: Vec<(f64, f64, f64)>, map: Map },
}

/// A point with the number of its colour.
pub type Coloured = ((f64, f64), usize);

/// One series of bars at the positions 0, 1, 2, ….
#[derive(Clone, Debug)]
pub struct Bars {
    pub name: String,
    pub heights: Vec<f64>,
    /// Number of this series among those drawn side by side.
    pub place: usize,
    pub colour: usize,
}

/// Coloured cells, row by row from the top.
#[derive(Clone, Debug)]
pub struct Heat {
    pub label: String,
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f64>,
    pub x: (f64, f64),
    pub y: (f64, f64),
    pub map: Map,
    /// The values at the ends of the colours; without it those of the matrix itself.
    pub scale: Option<(f64, f64)>,
    /// Cells with enough room show their value.
    pub cells: bool,
}

/// The dash pattern of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dash {
    Solid,
    Dashed,
    Dotted,
}

impl Dash {
    /// The SVG attribute.
    pub fn attribute(self) -> &'static str {
        match self {
            Dash::Solid => "",
            Dash::Dashed => r#" stroke-dasharray="6 4""#,
            Dash::Dotted => r#" stroke-dasharray="1 4""#,
        }
    }
}

/// A cloud with more marks than this is thinned, so that the file stays small.
const MOST_MARKS: usize = 20_000;
/// The colour of points whose class has no name.
const NAMELESS: &str = "#bbb";
/// Colours that a map is cut into for a cloud.
const SHADES: usize = 32;

impl Line {
    /// Draws the band and the line over it.
    pub fn draw(&self, c: &mut Canvas, frame: &Frame, colour: &str) {
        c.path(&self.band_path(frame), &format!(r#"fill="{colour}" fill-opacity=".18""#));
        let points: Vec<_> = self.points.iter().map(|&p| frame.point(p)).collect();
        let attributes = r#"fill="none" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round""#;
        c.path(&trace(&points), &format!(r#"{attributes} stroke="{colour}"{}"#, self.dash.attribute()));
    }

    fn band_path(&self, frame: &Frame) -> String {
        // An interval that goes below zero on a logarithmic axis ends at the lower end of the axis.
        let floor = |v: f64| if frame.y.span.log && v <= 0.0 { frame.y.span.lo } else { v };
        let pairs = self.points.iter().zip(&self.band);
        let edges: Vec<Option<[(f64, f64); 2]>> = pairs
            .map(|(&(x, _), &(low, high))| Some([frame.point((x, floor(low)))?, frame.point((x, high))?]))
            .collect();
        let mut path = String::new();
        for stretch in edges.split(Option::is_none).filter(|s| !s.is_empty()) {
            let stretch: Vec<_> = stretch.iter().flatten().collect();
            let stride = stretch.len().div_ceil(2000);
            let kept: Vec<_> = (0..stretch.len()).filter(|i| i % stride == 0 || i + 1 == stretch.len()).collect();
            let there = kept.iter().map(|&i| stretch[i][0]);
            let corners = there.chain(kept.iter().rev().map(|&i| stretch[i][1]));
            for (i, (x, y)) in corners.enumerate() {
                path += &format!("{}{} {}", if i == 0 { 'M' } else { 'L' }, num(x), num(y));
            }
            path.push('Z');
        }
        path
    }
}

/// The path through the points, broken where one is missing. Of neighbours that share half a pixel
/// across only the first, the lowest, the highest and the last are kept: the image is the same.
fn trace(points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    for stretch in points.split(Option::is_none).filter(|s| !s.is_empty()) {
        let stretch: Vec<(f64, f64)> = stretch.iter().flatten().copied().collect();
        let mut pen = 'M';
        for column in stretch.chunk_by(|a, b| (a.0 * 2.0).floor() == (b.0 * 2.0).floor()) {
            let by_height = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
            let all = || 0..column.len();
            let mut kept =
                vec![0, all().min_by(by_height).unwrap_or(0), all().max_by(by_height).unwrap_or(0), column.len() - 1];
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

impl Cloud {
    /// Each point with the number of its colour, and the colours.
    pub fn bins(&self) -> (Vec<Coloured>, Vec<String>) {
        match self {
            Cloud::One { points, .. } => (points.iter().map(|&p| (p, 0)).collect(), vec![]),
            Cloud::Classes { points, names } => {
                let known = (0..names.len()).map(|i| hex(category(i, names.len())));
                let colours = known.chain([NAMELESS.to_owned()]).collect();
                (points.iter().map(|&(x, y, class)| ((x, y), class.min(names.len()))).collect(), colours)
            }
            Cloud::Values { points, map, .. } => {
                let values: Vec<f64> = points.iter().map(|p| p.2).collect();
                let span = value_span(&values, *map);
                let shade = |v| Some((span.share(v)? * (SHADES - 1) as f64).round() as usize);
                let colours = (0..SHADES).map(|i| hex(map.at(i as f64 / (SHADES - 1) as f64))).collect();
                (points.iter().filter_map(|&(x, y, v)| Some(((x, y), shade(v)?))).collect(), colours)
            }
        }
    }

    /// Draws those marks that lie inside the axes.
    pub fn draw(&self, c: &mut Canvas, frame: &Frame, colours: usize) {
        let (points, mut paints) = self.bins();
        if let Cloud::One { colour, .. } = self {
            paints = vec![hex(category(*colour, colours))];
        }
        let inside = |(p, bin): ((f64, f64), usize)| Some((frame.point(p).filter(|&p| frame.at.holds(p))?, bin));
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
        if few {
            let rim = format!(r##"stroke="#fff" stroke-width="{}" stroke-linecap="round""##, num(width + 1.6));
            c.path(&paths.concat(), &rim);
        }
        for (i, path) in paths.iter().enumerate() {
            let paint = &paints[i % paints.len()];
            let look = format!(
                r#"stroke="{paint}" stroke-width="{}" stroke-opacity=".85" stroke-linecap="round""#,
                num(width)
            );
            c.path(path, &look);
        }
    }
}

impl Bars {
    /// The boxes that can be drawn, in order.
    pub fn boxes(&self, frame: &Frame, series: usize) -> Vec<Rect> {
        (0..self.heights.len()).filter_map(|i| self.bar(frame, series, i)).collect()
    }

    fn bar(&self, frame: &Frame, series: usize, i: usize) -> Option<Rect> {
        let width = 0.76 / series.max(1) as f64;
        let left = i as f64 - 0.38 + width * self.place as f64;
        let (x0, x1) = (frame.x.px(left)?, frame.x.px(left + width)?);
        let foot = frame.y.px(if frame.y.span.log { frame.y.span.lo } else { 0.0 })?;
        let head = frame.y.px(self.heights[i])?;
        Some(Rect { x: x0 + 0.5, y: head.min(foot), w: (x1 - x0 - 1.0).max(1.0), h: (foot - head).abs() })
    }

    /// Draws the bars of one of so many series.
    pub fn draw(&self, c: &mut Canvas, frame: &Frame, colour: &str, series: usize) {
        for bar in self.boxes(frame, series) {
            c.rect(bar, &format!(r#"fill="{colour}""#));
        }
    }
}

impl Heat {
    /// The values that the colours run over.
    pub fn span(&self) -> Span {
        match self.scale {
            Some((lo, hi)) => Span::of([lo, hi], false),
            None => value_span(&self.values, self.map),
        }
    }

    /// Draws the cells, and their values where there is room.
    pub fn draw(&self, c: &mut Canvas, frame: &Frame) {
        let corner = |x, y| Some((frame.x.px(x)?, frame.y.px(y)?));
        let (Some(a), Some(b)) = (corner(self.x.0, self.y.0), corner(self.x.1, self.y.1)) else { return };
        let at = Rect { x: a.0.min(b.0), y: a.1.min(b.1), w: (b.0 - a.0).abs(), h: (b.1 - a.1).abs() };
        let count = self.rows.saturating_mul(self.cols);
        if count == 0 || self.values.len() < count {
            return;
        }
        let span = self.span();
        let levels: Vec<f64> = self.values[..count].iter().map(|&v| span.share(v).unwrap_or(f64::NAN)).collect();
        let (rows, cols, pixels) = pooled(self.rows, self.cols, &levels);
        c.image(at, &png::data_uri(cols, rows, &pixels, self.map), true);

        let (w, h) = (at.w / self.cols as f64, at.h / self.rows as f64);
        if !self.cells || w < 12.0 || h < 15.0 {
            return;
        }
        let whole = self.values.iter().all(|v| v.fract() == 0.0 && v.abs() < 1e5);
        let label = |v: f64| plain(v, if whole { 0 } else { 2 });
        let widest = self.values.iter().map(|&v| text_width(&label(v), 11.0)).fold(0.0, f64::max);
        if widest + 6.0 > w {
            return;
        }
        for (i, &value) in self.values[..count].iter().enumerate().filter(|(_, v)| v.is_finite()) {
            let (x, y) = (at.x + w * ((i % self.cols) as f64 + 0.5), at.y + h * ((i / self.cols) as f64 + 0.5) + 4.0);
            let fill = if is_dark(self.map.at(levels[i])) { "#fff" } else { INK };
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
pub fn value_span(values: &[f64], map: Map) -> Span {
    let negated = values.iter().map(|v| -v).filter(|_| map == Map::Diverging);
    Span::of(values.iter().copied().chain(negated), false)
}

/// Markers with a white rim. The shape depends on the colour: disc, square, diamond, triangle.
pub fn draw_marks(c: &mut Canvas, points: &[(f64, f64)], shape: usize, colour: &str) {
    let outline = |(x, y): (f64, f64)| match shape % 4 {
        0 => format!("M{} {}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", num(x - 3.5), num(y)),
        1 => format!("M{} {}h6v6h-6z", num(x - 3.0), num(y - 3.0)),
        2 => format!("M{} {}l4.2 4.2l-4.2 4.2l-4.2-4.2z", num(x), num(y - 4.2)),
        _ => format!("M{} {}l4 7h-8z", num(x), num(y - 4.4)),
    };
    let path: String = points.iter().map(|&p| outline(p)).collect();
    c.path(&path, &format!(r##"fill="{colour}" stroke="#fff" stroke-width=".8""##));
}

#[cfg(test)]
mod tests {
    use super::pooled;

    #[test]
    fn pooling_averages_blocks_and_skips_gaps() {
        let levels: Vec<f64> = (0..1200).map(|i| if i < 2 { f64::NAN } else { f64::from(i) }).collect();
        let (rows, cols, pooled) = pooled(1, 1200, &levels);
        assert_eq!((rows, cols, pooled[1], pooled[599]), (1, 600, 2.5, 1198.5));
        assert!(pooled[0].is_nan());
    }
}
