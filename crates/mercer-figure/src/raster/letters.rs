//! The outlines of letters.

use super::Point;
use super::elements::Text;
use super::path::Outline;
use flate2::read::ZlibDecoder;
use std::collections::HashMap;
use std::io::Read;

/// Written by `font/subset.py`, which says what it holds.
const OUTLINES: &[u8] = include_bytes!("../../font/outlines.bin");

/// Units of the outlines for each unit of the font size.
const UNITS: f64 = 2048.0;

/// Points of a curve.
const STEPS: usize = 6;

/// A point, and whether it is on the curve.
type Knot = (f64, f64, bool);

struct Letter {
    advance: f64,
    contours: Vec<Vec<Knot>>,
}

/// The regular and the bold face.
pub struct Letters([HashMap<char, Letter>; 2]);

impl Letters {
    pub fn load() -> Letters {
        let mut bytes = vec![];
        ZlibDecoder::new(OUTLINES).read_to_end(&mut bytes).expect("the outlines are part of the program");
        let mut rest = &bytes[..];
        let mut face = || (0..number::<2>(&mut rest)).map(|_| letter(&mut rest)).collect();
        Letters([face(), face()])
    }

    /// The outlines of a text in place.
    pub fn outlines(&self, text: &Text) -> Vec<Outline> {
        let letters = &self.0[usize::from(text.bold)];
        let advance = |c: char| letters.get(&c).map_or(0.6, |letter| letter.advance / UNITS);
        let width: f64 = text.runs.iter().map(|run| run.size * run.text.chars().map(advance).sum::<f64>()).sum();
        let (mut x, mut y) = (text.at.0 - width * text.anchor, text.at.1);
        let mut outlines = vec![];
        for run in &text.runs {
            y += run.dy;
            for c in run.text.chars() {
                let place = |(px, py): Point| text.turned((x + px * run.size / UNITS, y - py * run.size / UNITS));
                match letters.get(&c) {
                    Some(letter) => outlines.extend(letter.contours.iter().map(|knots| curve(knots, place))),
                    None if c.is_whitespace() => {}
                    None => outlines.extend(missing().map(|knots| curve(&knots, place))),
                }
                x += run.size * advance(c);
            }
        }
        outlines
    }
}

/// A whole number of N bytes, the lowest first.
fn number<const N: usize>(rest: &mut &[u8]) -> u32 {
    let (bytes, after) = rest.split_at(N);
    *rest = after;
    bytes.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn letter(rest: &mut &[u8]) -> (char, Letter) {
    let signed = |rest: &mut &[u8]| f64::from(number::<2>(rest) as u16 as i16);
    let c = char::from_u32(number::<4>(rest)).unwrap_or(' ');
    let (advance, contours) = (f64::from(number::<2>(rest)), number::<1>(rest));
    let knot = |rest: &mut &[u8]| (signed(rest), signed(rest), number::<1>(rest) == 1);
    let contours = (0..contours).map(|_| (0..number::<1>(rest)).map(|_| knot(rest)).collect()).collect();
    (c, Letter { advance, contours })
}

/// The box that stands for a letter without an outline.
fn missing() -> impl Iterator<Item = Vec<Knot>> {
    let frame =
        |x0: f64, y0: f64, x1: f64, y1: f64| vec![(x0, y0, true), (x1, y0, true), (x1, y1, true), (x0, y1, true)];
    let inner = frame(220.0, 120.0, 1000.0, 1340.0).into_iter().rev().collect();
    [frame(100.0, 0.0, 1120.0, 1460.0), inner].into_iter()
}

/// The polygon of a contour. Between two points off the curve, the one half way is on it.
fn curve(knots: &[Knot], place: impl Fn(Point) -> Point) -> Outline {
    let middle = |a: Knot, b: Knot| ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0, true);
    let mut all: Vec<Knot> = vec![];
    for (i, &knot) in knots.iter().enumerate() {
        let before = knots[(i + knots.len() - 1) % knots.len()];
        if !knot.2 && !before.2 {
            all.push(middle(before, knot));
        }
        all.push(knot);
    }
    let first = all.iter().position(|knot| knot.2).unwrap_or(0);
    all.rotate_left(first);
    let mut points = vec![];
    for (i, &(x, y, on)) in all.iter().enumerate() {
        if on {
            points.push(place((x, y)));
            continue;
        }
        let (a, b) = (all[i - 1], all[(i + 1) % all.len()]);
        for step in 1..STEPS {
            let t = step as f64 / STEPS as f64;
            let at = |a: f64, c: f64, b: f64| (1.0 - t).powi(2) * a + 2.0 * t * (1.0 - t) * c + t * t * b;
            points.push(place((at(a.0, x, b.0), at(a.1, y, b.1))));
        }
    }
    Outline { points, closed: true }
}
