//! What stands on the axes: lines, clouds of points, bars, heat maps and remarks, and how each is drawn.

use super::frame::{Frame, Sample};
use super::palette::{Map, category, hex, is_dark};
use super::png;
use super::svg::{AXIS, Canvas, INK, Rect, Style, num, text_width};
use super::ticks::{Span, plain, shows};

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
    /// A remark beside a point.
    Note { at: (f64, f64), text: String },
    /// A horizontal rule.
    Level { y: f64, text: String },
    /// A vertical rule.
    Mark { x: f64, text: String },
}

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

/// One series of bars at the places 0, 1, 2, ….
#[derive(Clone, Debug)]
pub struct Bars {
    pub name: String,
    pub heights: Vec<f64>,
    pub whiskers: Vec<f64>,
    /// Which series this is among those that stand side by side.
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
    /// Cells with enough room show their value.
    pub cells: bool,
}

/// How a line is broken.
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

/// More marks than this in one cloud are thinned: the eye cannot tell, the file stays small.
const MOST_MARKS: usize = 20_000;
/// The colour of points whose class has no name.
const NAMELESS: &str = "#bbb";
/// Colours that a map is cut into for a cloud.
const SHADES: usize = 32;

impl Layer {
    /// The place in the palette, for those layers that take one.
    pub fn colour(&self) -> Option<usize> {
        match self {
            Layer::Line(Line { colour, .. }) | Layer::Bars(Bars { colour, .. }) => Some(*colour),
            Layer::Cloud(Cloud::One { colour, .. }) => Some(*colour),
            _ => None,
        }
    }

    /// The corners of the boxes that the layer needs in view; NaN where it does not care.
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
                let top = |(i, &h): (usize, &f64)| {
                    let half = bars.whiskers.get(i).copied().filter(|w| w.is_finite()).unwrap_or(0.0);
                    let foot = if y_log { h / 2.0 } else { 0.0 };
                    [(f64::NAN, foot.min(h - half)), (f64::NAN, foot.max(h + half))]
                };
                bars.heights.iter().enumerate().map(top).collect()
            }
            Layer::Heat(heat) => vec![[(heat.x.0, heat.y.0), (heat.x.1, heat.y.1)]],
            Layer::Note { at, .. } => vec![[*at; 2]],
            Layer::Level { y, .. } => vec![[(f64::NAN, *y); 2]],
            Layer::Mark { x, .. } => vec![[(*x, f64::NAN); 2]],
        }
    }

    /// Entries of the legend: name, colour and how the sample looks.
    pub fn legend(&self, colours: usize) -> Vec<(String, String, Sample)> {
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
            Layer::Heat(heat) if !heat.label.is_empty() => {
                Some((&heat.label, value_span(&heat.values, heat.map), heat.map))
            }
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
            Layer::Level { y, .. } => frame.y.px(*y).map_or(vec![], |y| sample((at.x, y), (at.right(), y))),
            Layer::Mark { x, .. } => frame.x.px(*x).map_or(vec![], |x| sample((x, at.y), (x, at.bottom()))),
            Layer::Note { at, .. } => frame.point(*at).into_iter().collect(),
        }
    }

    /// Draws what must stay inside the axes.
    pub fn draw_clipped(&self, c: &mut Canvas, frame: &Frame, colours: usize, series: usize) {
        match self {
            Layer::Line(line) => line.draw(c, frame, &hex(category(line.colour, colours))),
            Layer::Bars(bars) => bars.draw(c, frame, &hex(category(bars.colour, colours)), series),
            Layer::Heat(heat) => heat.draw(c, frame),
            Layer::Level { y, .. } => {
                if let Some(y) = frame.y.px(*y) {
                    c.line(
                        (frame.at.x, y),
                        (frame.at.right(), y),
                        &format!(r#"stroke="{AXIS}" stroke-dasharray="4 3""#),
                    );
                }
            }
            Layer::Mark { x, .. } => {
                if let Some(x) = frame.x.px(*x) {
                    c.line(
                        (x, frame.at.y),
                        (x, frame.at.bottom()),
                        &format!(r#"stroke="{AXIS}" stroke-dasharray="4 3""#),
                    );
                }
            }
            Layer::Cloud(_) | Layer::Note { .. } => {}
        }
    }

    /// Draws the marks: they are whole or absent, never cut at the edge.
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

    /// Writes a remark on the side of its point or rule that has the least data, and takes that place.
    pub fn draw_remark(&self, c: &mut Canvas, frame: &Frame, taken: &mut Vec<(f64, f64)>) {
        let at = frame.at;
        let (text, places) = match self {
            Layer::Note { at: point, text } => {
                let Some((x, y)) = frame.point(*point).filter(|&p| at.holds(p)) else { return };
                let (r, l, above, below) = (x + 6.0, x - 6.0, y - 6.0, y + 14.0);
                (text, [(r, above, false), (l, above, true), (r, below, false), (l, below, true)])
            }
            Layer::Level { y, text } => {
                let Some(y) = frame.y.px(*y).filter(|&y| at.holds((at.x, y))) else { return };
                let (r, l, above, below) = (at.right() - 4.0, at.x + 6.0, y - 4.0, y + 13.0);
                (text, [(r, above, true), (l, above, false), (r, below, true), (l, below, false)])
            }
            Layer::Mark { x, text } => {
                let Some(x) = frame.x.px(*x).filter(|&x| at.holds((x, at.y))) else { return };
                let (r, l, high, low) = (x + 5.0, x - 5.0, at.y + 12.0, at.bottom() - 6.0);
                (text, [(r, high, false), (l, high, true), (r, low, false), (l, low, true)])
            }
            _ => return,
        };
        let width = text_width(text, 11.0);
        let area = |(x, y, ends): (f64, f64, bool)| Rect {
            x: if ends { x - width } else { x },
            y: y - 9.0,
            w: width,
            h: 11.0,
        };
        let trouble = |place: &(f64, f64, bool)| {
            let area = area(*place);
            let outside = !at.holds((area.x, area.y)) || !at.holds((area.right(), area.bottom()));
            (outside, taken.iter().filter(|&&p| area.holds(p)).count())
        };
        let Some(best) = places.into_iter().min_by_key(trouble) else { return };
        let style =
            Style { halo: true, fill: "#444", anchor: if best.2 { "end" } else { "start" }, ..Style::new(11.0) };
        c.text((best.0, best.1), text, style);
        taken.extend(area(best).samples());
    }
}

impl Line {
    fn draw(&self, c: &mut Canvas, frame: &Frame, colour: &str) {
        c.path(&self.band_path(frame), &format!(r#"fill="{colour}" fill-opacity=".18""#));
        let points: Vec<_> = self.points.iter().map(|&p| frame.point(p)).collect();
        let attributes = r#"fill="none" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round""#;
        c.path(&trace(&points), &format!(r#"{attributes} stroke="{colour}"{}"#, self.dash.attribute()));
    }

    fn band_path(&self, frame: &Frame) -> String {
        // An interval that reaches below zero on a logarithmic axis reaches down to its end.
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
/// across only the first, the lowest, the highest and the last are kept: the picture is the same.
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
    fn bins(&self) -> (Vec<((f64, f64), usize)>, Vec<String>) {
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

    fn draw(&self, c: &mut Canvas, frame: &Frame, colours: usize) {
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
        // The multiples of the golden ratio spread evenly whatever the order of the points, so they choose
        // both which points stay and in which of the rounds they are drawn: no class buries another.
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
    fn boxes(&self, frame: &Frame, series: usize) -> Vec<Rect> {
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

    fn draw(&self, c: &mut Canvas, frame: &Frame, colour: &str, series: usize) {
        for i in 0..self.heights.len() {
            let Some(bar) = self.bar(frame, series, i) else { continue };
            c.rect(bar, &format!(r#"fill="{colour}""#));
            let half = self.whiskers.get(i).copied().unwrap_or(0.0);
            let ends = (frame.y.px(self.heights[i] - half), frame.y.px(self.heights[i] + half));
            if let (true, (low, Some(high))) = (half > 0.0, ends) {
                let (low, x, cap) = (low.unwrap_or(frame.at.bottom()), bar.x + bar.w / 2.0, (bar.w / 4.0).min(5.0));
                let (l, r) = (num(x - cap), num(x + cap));
                let (x, low, high) = (num(x), num(low), num(high));
                c.path(
                    &format!("M{x} {low}V{high}M{l} {low}H{r}M{l} {high}H{r}"),
                    &format!(r#"stroke="{INK}" fill="none""#),
                );
            }
        }
    }
}

impl Heat {
    fn draw(&self, c: &mut Canvas, frame: &Frame) {
        let corner = |x, y| Some((frame.x.px(x)?, frame.y.px(y)?));
        let (Some(a), Some(b)) = (corner(self.x.0, self.y.0), corner(self.x.1, self.y.1)) else { return };
        let at = Rect { x: a.0.min(b.0), y: a.1.min(b.1), w: (b.0 - a.0).abs(), h: (b.1 - a.1).abs() };
        let count = self.rows.saturating_mul(self.cols);
        if count == 0 || self.values.len() < count {
            return;
        }
        let span = value_span(&self.values, self.map);
        let levels: Vec<f64> = self.values[..count].iter().map(|&v| span.share(v).unwrap_or(f64::NAN)).collect();
        c.image(at, &png::data_uri(self.cols, self.rows, &levels, self.map), true);

        let (w, h) = (at.w / self.cols as f64, at.h / self.rows as f64);
        let whole = self.values.iter().all(|v| v.fract() == 0.0 && v.abs() < 1e5);
        let label = |v: f64| plain(v, if whole { 0 } else { 2 });
        let widest = self.values.iter().map(|&v| text_width(&label(v), 11.0)).fold(0.0, f64::max);
        if !self.cells || widest + 6.0 > w || h < 15.0 {
            return;
        }
        for (i, &value) in self.values[..count].iter().enumerate().filter(|(_, v)| v.is_finite()) {
            let (x, y) = (at.x + w * ((i % self.cols) as f64 + 0.5), at.y + h * ((i / self.cols) as f64 + 0.5) + 4.0);
            let fill = if is_dark(self.map.at(levels[i])) { "#fff" } else { INK };
            c.text((x, y), &label(value), Style { fill, ..Style::new(11.0).middle() });
        }
    }
}

/// The values a colour map covers; symmetric about zero when its middle means zero.
fn value_span(values: &[f64], map: Map) -> Span {
    let negated = values.iter().map(|v| -v).filter(|_| map == Map::Diverging);
    Span::of(values.iter().copied().chain(negated), false)
}

/// Points at most six pixels apart from `a` to `b`.
fn sample(a: (f64, f64), b: (f64, f64)) -> Vec<(f64, f64)> {
    let n = (((b.0 - a.0).abs() + (b.1 - a.1).abs()) / 6.0).ceil().clamp(1.0, 2000.0);
    (0..=n as usize).map(|i| i as f64 / n).map(|t| (a.0 + t * (b.0 - a.0), a.1 + t * (b.1 - a.1))).collect()
}

/// Markers with a white rim; the shape goes with the colour: disc, square, diamond, triangle.
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
