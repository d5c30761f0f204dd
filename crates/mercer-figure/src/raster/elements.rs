//! The elements of a figure's SVG document, in their order.

use super::Point;
use super::path::{self, Outline, Stroke};
use super::pixels::Paint;
use crate::palette::Rgb;
use crate::png;
use crate::svg::INK;

pub enum Element {
    /// A document, or one inside it that clips.
    Open {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
    },
    /// The end of a document.
    Close,
    Shape {
        outlines: Vec<Outline>,
        paint: Paint,
    },
    /// An image over a box: left, top, width and height.
    Image {
        at: [f64; 4],
        image: Image,
        sharp: bool,
    },
    Text(Text),
}

/// Text to be set.
pub struct Text {
    pub at: Point,
    /// How much of the width is before the point: 0, 0.5 or 1.
    pub anchor: f64,
    pub bold: bool,
    /// Degrees, clockwise about the point.
    turn: f64,
    pub paint: Paint,
    pub runs: Vec<Run>,
}

/// Text of one size, and how far its baseline is below the one before.
pub struct Run {
    pub text: String,
    pub size: f64,
    pub dy: f64,
}

impl Text {
    /// A point of the text that is not turned, turned.
    pub fn turned(&self, (x, y): Point) -> Point {
        let ((cx, cy), (sin, cos)) = (self.at, self.turn.to_radians().sin_cos());
        (cx + cos * (x - cx) - sin * (y - cy), cy + sin * (x - cx) + cos * (y - cy))
    }
}

/// Colours row by row; none where it is transparent.
pub struct Image {
    pub width: usize,
    pub height: usize,
    pub colours: Vec<Option<Rgb>>,
}

impl Image {
    pub fn at(&self, column: usize, row: usize) -> Option<Rgb> {
        self.colours.get(row.min(self.height - 1) * self.width + column.min(self.width - 1)).copied().flatten()
    }

    /// The colour between the centres of pixels; transparent where the nearest is.
    pub fn smooth(&self, u: f64, v: f64) -> Option<Rgb> {
        let nearest = self.at(u as usize, v as usize)?;
        let split = |at: f64| ((at - 0.5).max(0.0) as usize, ((at - 0.5).max(0.0)).fract());
        let ((i, a), (j, b)) = (split(u), split(v));
        let colour = |i: usize, j: usize| self.at(i, j).unwrap_or(nearest).map(f64::from);
        let corners = [colour(i, j), colour(i + 1, j), colour(i, j + 1), colour(i + 1, j + 1)];
        let weights = [(1.0 - a) * (1.0 - b), a * (1.0 - b), (1.0 - a) * b, a * b];
        Some(std::array::from_fn(|c| corners.iter().zip(weights).map(|(k, w)| w * k[c]).sum::<f64>().round() as u8))
    }
}

/// A tag: its name and its attributes.
struct Tag<'a> {
    name: &'a str,
    rest: &'a str,
}

impl<'a> Tag<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        let start = self
            .rest
            .match_indices(key)
            .find(|(i, _)| self.rest[..*i].ends_with(' ') && self.rest[i + key.len()..].starts_with("=\""))?;
        self.rest[start.0 + key.len() + 2..].split('"').next()
    }

    fn number(&self, key: &str, otherwise: f64) -> f64 {
        self.get(key).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }

    fn numbers(&self, key: &str) -> Vec<f64> {
        self.get(key).map_or(vec![], |text| text.split([' ', '(', ')']).filter_map(|word| word.parse().ok()).collect())
    }

    fn paint(&self, fill: Option<Rgb>) -> Paint {
        let colour = |key: &str, otherwise| self.get(key).map_or(otherwise, colour);
        let line = Stroke {
            width: self.number("stroke-width", 1.0),
            dashes: self.numbers("stroke-dasharray"),
            round: self.get("stroke-linecap") == Some("round"),
        };
        Paint {
            fill: colour("fill", fill).map(|c| (c, self.number("fill-opacity", 1.0))),
            stroke: colour("stroke", None).map(|c| (c, self.number("stroke-opacity", 1.0))),
            line,
            edge_first: self.get("paint-order") == Some("stroke"),
            sharp: self.name == "rect",
        }
    }
}

/// `#rrggbb` or `#rgb`; none otherwise.
fn colour(text: &str) -> Option<Rgb> {
    let digits: Vec<u8> = text.strip_prefix('#')?.chars().filter_map(|c| Some(c.to_digit(16)? as u8)).collect();
    match digits[..] {
        [r, g, b] => Some([17 * r, 17 * g, 17 * b]),
        [a, b, c, d, e, f] => Some([16 * a + b, 16 * c + d, 16 * e + f]),
        _ => None,
    }
}

/// The elements of a document.
pub fn elements(svg: &str) -> Vec<Element> {
    let mut found = vec![];
    let mut ink = colour(INK);
    let mut text: Option<Text> = None;
    for part in svg.split('<').skip(1) {
        let (tag, content) = part.split_once('>').unwrap_or((part, ""));
        let end = tag.find([' ', '/']).filter(|end| *end > 0).unwrap_or(tag.len());
        let tag = Tag { name: &tag[..end], rest: &tag[end..] };
        let mut size = 0.0;
        let mut dy = 0.0;
        match tag.name {
            "svg" => {
                if found.is_empty() {
                    ink = tag.get("fill").map_or(ink, colour);
                }
                let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| tag.number(key, 0.0));
                found.push(Element::Open { x, y, width, height });
            }
            "/svg" => found.push(Element::Close),
            "rect" => {
                let [x, y, w, h] = ["x", "y", "width", "height"].map(|key| tag.number(key, 0.0));
                let points = vec![(x, y), (x + w, y), (x + w, y + h), (x, y + h)];
                found.push(Element::Shape { outlines: vec![Outline { points, closed: true }], paint: tag.paint(ink) });
            }
            "path" => {
                let outlines = path::parse(tag.get("d").unwrap_or(""));
                found.push(Element::Shape { outlines, paint: tag.paint(ink) });
            }
            "image" => {
                let at = ["x", "y", "width", "height"].map(|key| tag.number(key, 0.0));
                let sharp = tag.get("style").is_some_and(|style| style.contains("pixelated"));
                if let Some((width, height, colours)) = tag.get("href").and_then(png::decoded) {
                    found.push(Element::Image { at, image: Image { width, height, colours }, sharp });
                }
            }
            "text" => {
                let anchor = match tag.get("text-anchor") {
                    Some("middle") => 0.5,
                    Some("end") => 1.0,
                    _ => 0.0,
                };
                let paint = Paint { line: Stroke { round: true, ..tag.paint(ink).line }, ..tag.paint(ink) };
                let at = (tag.number("x", 0.0), tag.number("y", 0.0));
                let turn = tag.numbers("transform").first().copied().unwrap_or(0.0);
                size = tag.number("font-size", 12.0);
                text = Some(Text { at, anchor, bold: tag.get("font-weight").is_some(), turn, paint, runs: vec![] });
            }
            "tspan" => (size, dy) = (tag.number("font-size", 12.0), tag.number("dy", 0.0)),
            "/tspan" => size = text.as_ref().and_then(|text| text.runs.first()).map_or(12.0, |run| run.size),
            "/text" => found.extend(text.take().map(Element::Text)),
            _ => {}
        }
        if let Some(text) = text.as_mut().filter(|_| size > 0.0) {
            text.runs.push(Run { text: unescaped(content), size, dy });
        }
    }
    found
}

/// The text that [`crate::svg::escape`] wrote.
fn unescaped(text: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter))
}
