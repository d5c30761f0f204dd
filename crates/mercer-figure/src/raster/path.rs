//! Paths as polygons: their data, and the outlines of strokes and dashes.

use super::Point;

/// A line through points, and whether its end is joined to its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    pub points: Vec<Point>,
    pub closed: bool,
}

/// How lines are drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stroke {
    pub width: f64,
    /// Lengths of dashes and gaps; none for a solid line.
    pub dashes: Vec<f64>,
    /// Whether the ends are round.
    pub round: bool,
}

/// The outlines with all coordinates multiplied.
pub fn scaled(outlines: &[Outline], by: f64) -> Vec<Outline> {
    let points = |o: &Outline| o.points.iter().map(|&(x, y)| (by * x, by * y)).collect();
    outlines.iter().map(|o| Outline { points: points(o), closed: o.closed }).collect()
}

/// Reads path data: the commands M, L, H, V and Z, their relative forms, and half circles by `a`.
pub fn parse(data: &str) -> Vec<Outline> {
    let mut outlines: Vec<Outline> = vec![];
    let (mut here, mut start) = ((0.0, 0.0), (0.0, 0.0));
    let mut rest = data;
    while let Some(command) = rest.chars().next() {
        let (numbers, after) = numbers(&rest[command.len_utf8()..]);
        rest = after;
        let from = |p: Point| if command.is_ascii_lowercase() { p } else { (0.0, 0.0) };
        match command.to_ascii_uppercase() {
            'M' => {
                for (i, to) in numbers.chunks_exact(2).enumerate() {
                    here = (from(here).0 + to[0], from(here).1 + to[1]);
                    if i == 0 {
                        outlines.push(Outline { points: vec![], closed: false });
                        start = here;
                    }
                    push(&mut outlines, here);
                }
            }
            'Z' => {
                if let Some(last) = outlines.last_mut() {
                    last.closed = true;
                }
                here = start;
            }
            'A' => {
                for arc in numbers.chunks_exact(7) {
                    let to = (from(here).0 + arc[5], from(here).1 + arc[6]);
                    half_circle(here, to, arc[4] != 0.0).into_iter().for_each(|p| push(&mut outlines, p));
                    here = to;
                }
            }
            kind => {
                for to in numbers.chunks_exact(if kind == 'L' { 2 } else { 1 }) {
                    here = match kind {
                        'L' => (from(here).0 + to[0], from(here).1 + to[1]),
                        'H' => (from(here).0 + to[0], here.1),
                        _ => (here.0, from(here).1 + to[0]),
                    };
                    push(&mut outlines, here);
                }
            }
        }
    }
    outlines
}

fn push(outlines: &mut [Outline], point: Point) {
    if let Some(last) = outlines.last_mut() {
        last.points.push(point);
    }
}

/// The numbers at the start of the text, such as `1.5-.2 3`, and what is after them.
fn numbers(text: &str) -> (Vec<f64>, &str) {
    let mut found = vec![];
    let mut rest = text.trim_start_matches([' ', ',']);
    loop {
        let mut dot = false;
        let belongs = |(i, c): (usize, char)| match c {
            '-' => i == 0,
            '.' => !std::mem::replace(&mut dot, true),
            c => c.is_ascii_digit(),
        };
        let length = rest.char_indices().map(belongs).take_while(|b| *b).count();
        match rest[..length].parse() {
            Ok(number) => found.push(number),
            Err(_) => return (found, rest),
        }
        rest = rest[length..].trim_start_matches([' ', ',']);
    }
}

/// Points on the half circle from `a` to `b`, without its start; `sweep` turns with growing angle.
fn half_circle(a: Point, b: Point, sweep: bool) -> Vec<Point> {
    const STEPS: usize = 24;
    let (centre, radius) = (((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0), (b.0 - a.0).hypot(b.1 - a.1) / 2.0);
    let first = (a.1 - centre.1).atan2(a.0 - centre.0);
    let turn = if sweep { std::f64::consts::PI } else { -std::f64::consts::PI };
    let at = |i: usize| {
        let angle = first + turn * i as f64 / STEPS as f64;
        (centre.0 + radius * angle.cos(), centre.1 + radius * angle.sin())
    };
    (1..=STEPS).map(at).collect()
}

/// The polygons that a stroke covers. All turn the same way, so that those which overlap are filled once.
pub fn stroked(outlines: &[Outline], stroke: &Stroke) -> Vec<Vec<Point>> {
    let mut polygons = vec![];
    for outline in outlines {
        let mut line = outline.points.clone();
        if outline.closed {
            line.extend(outline.points.first());
        }
        let pieces = if stroke.dashes.iter().sum::<f64>() > 0.0 { dashed(&line, &stroke.dashes) } else { vec![line] };
        for piece in pieces {
            trace(&piece, stroke, outline.closed && stroke.dashes.is_empty(), &mut polygons);
        }
    }
    polygons
}

/// A box for each part of the line, and discs where parts join and at round ends.
fn trace(line: &[Point], stroke: &Stroke, closed: bool, polygons: &mut Vec<Vec<Point>>) {
    let half = stroke.width / 2.0;
    for pair in line.windows(2) {
        let ((ax, ay), (bx, by)) = (pair[0], pair[1]);
        let length = (bx - ax).hypot(by - ay);
        if length > 0.0 {
            let (nx, ny) = (-(by - ay) / length * half, (bx - ax) / length * half);
            polygons.push(vec![(ax + nx, ay + ny), (bx + nx, by + ny), (bx - nx, by - ny), (ax - nx, ay - ny)]);
        }
    }
    let ends = if stroke.round || closed { 0 } else { 1 };
    let joined = line.len().saturating_sub(ends);
    (ends..joined).for_each(|i| polygons.push(disc(line[i], half)));
}

/// A disc that turns the way the boxes of [`trace`] do.
fn disc((x, y): Point, radius: f64) -> Vec<Point> {
    let sides = 16 + (2.0 * radius) as usize;
    let at = |i: usize| {
        let angle = -std::f64::consts::TAU * i as f64 / sides as f64;
        // As large as the disc itself.
        let radius =
            radius * (std::f64::consts::TAU / sides as f64 / (std::f64::consts::TAU / sides as f64).sin()).sqrt();
        (x + radius * angle.cos(), y + radius * angle.sin())
    };
    (0..sides).map(at).collect()
}

/// The parts of a line under its dashes.
fn dashed(line: &[Point], dashes: &[f64]) -> Vec<Vec<Point>> {
    let mut pieces = vec![];
    let (mut number, mut left) = (0, dashes[0]);
    let mut piece: Vec<Point> = line.first().copied().into_iter().collect();
    for pair in line.windows(2) {
        let ((ax, ay), (bx, by)) = (pair[0], pair[1]);
        let length = (bx - ax).hypot(by - ay);
        let mut done = 0.0;
        while length - done > left {
            done += left;
            let at = (ax + (bx - ax) * done / length, ay + (by - ay) * done / length);
            if number % 2 == 0 {
                piece.push(at);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![at];
            }
            number += 1;
            left = dashes[number % dashes.len()].max(1e-3);
        }
        left -= length - done;
        if number % 2 == 0 {
            piece.push((bx, by));
        }
    }
    if number % 2 == 0 {
        pieces.push(piece);
    }
    pieces
}

#[test]
fn path_data_is_read_as_it_is_written() {
    let square = |points: &[Point], closed| Outline { points: points.to_vec(), closed };
    let absolute = parse("M1 2H3V4L.5-.5Z");
    assert_eq!(absolute, [square(&[(1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (0.5, -0.5)], true)]);
    let relative = parse("M1 2l2 0v2h-2z");
    assert_eq!(relative, [square(&[(1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (1.0, 4.0)], true)]);
    assert_eq!(parse("M1 2L3 4M5 6h0").len(), 2);
    let lengths: Vec<f64> = dashed(&[(0.0, 0.0), (7.0, 0.0), (7.0, 13.0)], &[6.0, 4.0])
        .iter()
        .map(|piece| piece.windows(2).map(|p| (p[1].0 - p[0].0).hypot(p[1].1 - p[0].1)).sum())
        .collect();
    assert_eq!(lengths, [6.0, 6.0]);
}
