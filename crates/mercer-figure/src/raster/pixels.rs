//! An image under construction: polygons filled with smooth edges, and its file.

use super::path::{Outline, Stroke, stroked};
use super::{Point, elements::Image};
use crate::palette::Rgb;
use crate::png::chunk;
use flate2::{Compression, write::ZlibEncoder};
use std::io::Write;

/// Lines across each pixel on which coverage is measured; along a line it is exact.
const LINES: usize = 16;

/// How a shape is painted: the colour and opacity of its inside and of its edge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paint {
    pub fill: Option<(Rgb, f64)>,
    pub stroke: Option<(Rgb, f64)>,
    pub line: Stroke,
    /// Whether the edge is under the inside.
    pub edge_first: bool,
    /// Whether corners of the edge are sharp: that of a box.
    pub sharp: bool,
}

impl Paint {
    pub fn scaled(&self, by: f64) -> Paint {
        let dashes = self.line.dashes.iter().map(|d| by * d).collect();
        let line = Stroke { width: by * self.line.width, dashes, round: self.line.round };
        Paint { line, ..self.clone() }
    }
}

pub struct Pixels {
    pub width: usize,
    pub height: usize,
    /// `[height, width]`
    colours: Vec<Rgb>,
    /// Left, top, right and bottom of what is drawn, the innermost last.
    clips: Vec<[f64; 4]>,
}

/// An edge of a polygon: its upper end, its lower end, and whether it goes downwards.
struct Edge {
    top: Point,
    bottom: Point,
    down: bool,
}

impl Pixels {
    pub fn white(width: usize, height: usize) -> Pixels {
        let clips = vec![[0.0, 0.0, width as f64, height as f64]];
        Pixels { width, height, colours: vec![[255; 3]; width * height], clips }
    }

    /// Draws only inside the box until [`Self::unclip`].
    pub fn clip(&mut self, [x0, y0, x1, y1]: [f64; 4]) {
        let [a, b, c, d] = self.inside();
        self.clips.push([x0.max(a), y0.max(b), x1.min(c), y1.min(d)]);
    }

    pub fn unclip(&mut self) {
        if self.clips.len() > 1 {
            self.clips.pop();
        }
    }

    fn inside(&self) -> [f64; 4] {
        self.clips[self.clips.len() - 1]
    }

    pub fn shape(&mut self, outlines: &[Outline], paint: &Paint) {
        let polygons = || outlines.iter().map(|o| o.points.clone()).collect::<Vec<_>>();
        let edge = |pixels: &mut Pixels| {
            let Some((colour, opacity)) = paint.stroke else { return };
            let covered = if paint.sharp { frame(outlines, paint.line.width) } else { stroked(outlines, &paint.line) };
            pixels.fill(&covered, colour, opacity);
        };
        if paint.edge_first {
            edge(self);
        }
        if let Some((colour, opacity)) = paint.fill {
            self.fill(&polygons(), colour, opacity);
        }
        if !paint.edge_first {
            edge(self);
        }
    }

    /// Fills polygons; a point is inside where their edges turn around it.
    fn fill(&mut self, polygons: &[Vec<Point>], colour: Rgb, opacity: f64) {
        let mut edges: Vec<Edge> = polygons.iter().flat_map(|p| edges(p)).collect();
        edges.sort_by(|a, b| a.top.1.total_cmp(&b.top.1));
        let [left, upper, right, lower] = self.inside();
        let lowest = edges.iter().map(|e| e.bottom.1).fold(f64::MIN, f64::max).min(lower);
        let Some(highest) = edges.first().map(|e| e.top.1.max(upper)) else { return };
        let (mut next, mut active, mut crossings) = (0, Vec::<usize>::new(), Vec::<(f64, i32)>::new());
        let mut coverage = vec![0.0; self.width + 1];
        for row in highest.max(0.0) as usize..(lowest.ceil().max(0.0) as usize).min(self.height) {
            while next < edges.len() && edges[next].top.1 < (row + 1) as f64 {
                active.push(next);
                next += 1;
            }
            active.retain(|&e| edges[e].bottom.1 > row as f64);
            for line in 0..LINES {
                let y = row as f64 + (line as f64 + 0.5) / LINES as f64;
                if y < upper || y >= lower {
                    continue;
                }
                crossings.clear();
                crossings.extend(active.iter().filter_map(|&e| edges[e].crossing(y)));
                crossings.sort_by(|a, b| a.0.total_cmp(&b.0));
                let mut winding = 0;
                for pair in crossings.windows(2) {
                    winding += pair[0].1;
                    if winding != 0 {
                        cover(&mut coverage, pair[0].0.max(left), pair[1].0.min(right));
                    }
                }
            }
            for (x, coverage) in coverage.iter_mut().enumerate().take(self.width).filter(|(_, c)| **c > 0.0) {
                let share = opacity * (std::mem::take(coverage) / LINES as f64).min(1.0);
                self.blend(x, row, colour, share);
            }
        }
    }

    fn blend(&mut self, x: usize, y: usize, colour: Rgb, share: f64) {
        let here = &mut self.colours[y * self.width + x];
        for (old, new) in here.iter_mut().zip(colour) {
            *old = (f64::from(*old) + share * (f64::from(new) - f64::from(*old))).round() as u8;
        }
    }

    /// Stretches an image over the box, its pixels left sharp or smoothed.
    pub fn image(&mut self, at: [f64; 4], image: &Image, sharp: bool) {
        let [x, y, width, height] = at;
        let [left, upper, right, lower] = self.inside();
        let range = |low: f64, high: f64, most: usize| {
            (low - 0.5).ceil().max(0.0) as usize..((high - 0.5).ceil().max(0.0) as usize).min(most)
        };
        for row in range(y.max(upper), (y + height).min(lower), self.height) {
            for column in range(x.max(left), (x + width).min(right), self.width) {
                let u = (column as f64 + 0.5 - x) / width * image.width as f64;
                let v = (row as f64 + 0.5 - y) / height * image.height as f64;
                if let Some(colour) = if sharp { image.at(u as usize, v as usize) } else { image.smooth(u, v) } {
                    self.colours[row * self.width + column] = colour;
                }
            }
        }
    }

    /// The file: eight bits a colour, with the size of a pixel.
    pub fn png(&self) -> Vec<u8> {
        /// 192 pixels an inch.
        const PER_METRE: u32 = 7559;
        let mut scanlines = Vec::with_capacity(self.height * (3 * self.width + 1));
        for row in self.colours.chunks(self.width) {
            scanlines.push(0); // filter: none
            scanlines.extend(row.iter().flatten());
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let compressed =
            encoder.write_all(&scanlines).and_then(|()| encoder.finish()).expect("memory can be written to");
        let [w, h] = [self.width, self.height].map(|size| (size as u32).to_be_bytes());
        let density = PER_METRE.to_be_bytes();
        [
            b"\x89PNG\r\n\x1a\n".to_vec(),
            chunk(b"IHDR", &[&w[..], &h, &[8, 2, 0, 0, 0]].concat()), // eight bits, true colour
            chunk(b"pHYs", &[&density[..], &density, &[1]].concat()),
            chunk(b"IDAT", &compressed),
            chunk(b"IEND", &[]),
        ]
        .concat()
    }

    /// The sum over all pixels of how black they are, from 0 to 1.
    #[cfg(test)]
    pub fn darkness(&self) -> f64 {
        self.colours.iter().map(|c| 1.0 - f64::from(c[0]) / 255.0).sum()
    }

    #[cfg(test)]
    pub fn at(&self, x: usize, y: usize) -> Rgb {
        self.colours[y * self.width + x]
    }
}

/// The edges of a polygon that are not level.
fn edges(polygon: &[Point]) -> impl Iterator<Item = Edge> {
    let next = polygon.iter().skip(1).chain(polygon.first());
    polygon.iter().zip(next).filter(|(a, b)| a.1 != b.1).map(|(&a, &b)| match a.1 < b.1 {
        true => Edge { top: a, bottom: b, down: true },
        false => Edge { top: b, bottom: a, down: false },
    })
}

impl Edge {
    /// Where the edge crosses the height y, and which way it goes there.
    fn crossing(&self, y: f64) -> Option<(f64, i32)> {
        let (a, b) = (self.top, self.bottom);
        let x = || a.0 + (y - a.1) / (b.1 - a.1) * (b.0 - a.0);
        (a.1 <= y && y < b.1).then(|| (x(), if self.down { 1 } else { -1 }))
    }
}

/// Adds the length of the line from `x0` to `x1` inside each pixel.
fn cover(coverage: &mut [f64], x0: f64, x1: f64) {
    if x1 <= x0 {
        return;
    }
    let (first, last) = (x0 as usize, (x1 as usize).min(coverage.len() - 1));
    if first == last {
        coverage[first] += x1 - x0;
        return;
    }
    coverage[first] += (first + 1) as f64 - x0;
    coverage[first + 1..last].iter_mut().for_each(|c| *c += 1.0);
    coverage[last] += x1 - last as f64;
}

/// The frame of that width about each box.
fn frame(boxes: &[Outline], width: f64) -> Vec<Vec<Point>> {
    let grown = |o: &Outline, by: f64| -> [f64; 4] {
        let ends = |of: fn(&Point) -> f64| {
            let values = o.points.iter().map(of);
            [values.clone().fold(f64::MAX, f64::min) - by, values.fold(f64::MIN, f64::max) + by]
        };
        let ([x0, x1], [y0, y1]) = (ends(|p| p.0), ends(|p| p.1));
        [x0, y0, x1, y1]
    };
    let both = |o: &Outline| {
        let ([a, b, c, d], [e, f, g, h]) = (grown(o, width / 2.0), grown(o, -width / 2.0));
        [vec![(a, b), (c, b), (c, d), (a, d)], vec![(e, f), (e, h), (g, h), (g, f)]]
    };
    boxes.iter().flat_map(both).collect()
}
