//! Legend and colour bar.

use super::frame::{LABEL_SIZE, TICK_SIZE, fit, widest, with_factor};
use super::palette::Map;
use super::png;
use super::svg::{AXIS, Canvas, Rect, Style, num, text_width};
use super::ticks::{Scale, Span};

/// Height of one entry.
const ROW: f64 = 18.0;

/// The sample of a layer in the legend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// A stroke with that dash pattern, and the marker of that number.
    Line(&'static str, Option<usize>),
    /// A disc.
    Dot,
    /// A filled box.
    Swatch,
}

/// Name, colour and look of one legend entry.
pub type Entry = (String, String, Sample);

/// Position of a legend, if there is one.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Nowhere,
    /// Right of the axes.
    Outside,
    /// Inside the axes.
    In(Corner),
}

/// A corner of the axes: whether it is on the right, and whether it is at the bottom.
pub type Corner = (bool, bool);

/// The box of a legend of that size in a corner of the axes.
pub fn legend_corner((right, bottom): Corner, at: Rect, (w, h): (f64, f64)) -> Rect {
    let x = if right { at.right() - w - 8.0 } else { at.x + 10.0 };
    let y = if bottom { at.bottom() - h - 8.0 } else { at.y + 4.0 };
    Rect { x, y, w, h }
}

/// Width and height of a legend with one entry below the other.
pub fn legend_size(entries: &[Entry]) -> (f64, f64) {
    let width = widest_sample(entries);
    (entries.iter().map(|entry| entry_width(entry, width)).fold(0.0, f64::max), ROW * entries.len() as f64)
}

/// The width of an entry whose sample has that width.
fn entry_width((name, ..): &Entry, sample: f64) -> f64 {
    sample + 6.0 + 1.06 * text_width(&shorten(name, 40), 12.0) // some fonts are wider
}

/// The width that samples one below the other have.
fn widest_sample(entries: &[Entry]) -> f64 {
    entries.iter().map(|entry| sample_width(entry.2)).fold(0.0, f64::max)
}

fn sample_width(sample: Sample) -> f64 {
    if matches!(sample, Sample::Line(..)) { 26.0 } else { 10.0 }
}

/// Draws one entry below the other as far as the height allows.
pub fn draw_legend(c: &mut Canvas, (x, y): (f64, f64), entries: &[Entry], height: f64) {
    let most = (height / ROW) as usize;
    let shown = if entries.len() <= most { entries.len() } else { most.saturating_sub(1) };
    for (i, entry) in entries[..shown].iter().enumerate() {
        draw_entry(c, (x, y + ROW * i as f64), entry, widest_sample(entries));
    }
    if shown < entries.len() {
        let rest = format!("and {} more", entries.len() - shown);
        c.text((x, y + ROW * shown as f64 + 13.0), &rest, Style { fill: AXIS, ..Style::new(12.0) });
    }
}

/// Draws entries side by side within the width, and returns the height of all rows. Without a canvas it only measures.
pub fn legend_rows(mut canvas: Option<&mut Canvas>, (left, top): (f64, f64), width: f64, entries: &[Entry]) -> f64 {
    let (mut x, mut y) = (left, top);
    for entry in entries {
        let needed = entry_width(entry, sample_width(entry.2)) + 18.0;
        if x > left && x + needed > left + width {
            (x, y) = (left, y + ROW);
        }
        if let Some(c) = canvas.as_deref_mut() {
            draw_entry(c, (x, y), entry, sample_width(entry.2));
        }
        x += needed;
    }
    if entries.is_empty() { 0.0 } else { y + ROW - top }
}

/// Draws an entry whose sample has that width.
fn draw_entry(c: &mut Canvas, (x, y): (f64, f64), entry: &Entry, width: f64) {
    let (name, colour, sample) = entry;
    let middle = y + ROW / 2.0;
    match *sample {
        Sample::Line(dash, marker) => {
            let look = format!(r#"stroke="{colour}" stroke-width="1.8" stroke-linecap="round"{dash}"#);
            c.path(&format!("M{} {}H{}", num(x), num(middle), num(x + width)), &look);
            if let Some(shape) = marker {
                c.markers(&[(x + width / 2.0, middle)], shape, colour);
            }
        }
        Sample::Dot => c.markers(&[(x + width / 2.0, middle)], 0, colour),
        Sample::Swatch => {
            c.rect(Rect { x: x + width / 2.0 - 5.0, y: middle - 5.0, w: 10.0, h: 10.0 }, &format!(r#"fill="{colour}""#))
        }
    }
    c.text((x + width + 6.0, middle + 4.0), &shorten(name, 40), Style { halo: true, ..Style::new(12.0) });
}

/// The width of a colour bar with its labels.
pub fn colour_bar_width(label: &str, span: Span) -> f64 {
    12.0 + 5.0 + widest(&span.ticks(6)) + if label.is_empty() { 0.0 } else { 22.0 }
}

/// Draws the bar with its ticks and label, and returns the total width.
pub fn draw_colour_bar(c: &mut Canvas, at: Rect, label: &str, span: Span, map: Map) -> f64 {
    let levels: Vec<f64> = (0..128).rev().map(|i| f64::from(i) / 127.0).collect();
    c.image(at, &png::data_uri(1, 128, &levels, map), false);
    let ticks = span.ticks(6);
    let scale = Scale { span, ends: (at.bottom(), at.y) };
    for (v, text) in &ticks.major {
        if let Some(px) = scale.px(*v) {
            c.text((at.right() + 5.0, px + 4.0), text, Style::new(TICK_SIZE));
        }
    }
    let width = colour_bar_width(label, span);
    let label = with_factor(label, &ticks);
    let style = Style { turn: -90.0, ..Style::new(fit(&label, LABEL_SIZE, at.h)).middle() };
    c.text((at.x + width - 2.0, at.y + at.h / 2.0), &label, style);
    width + 14.0
}

/// At most that many characters; the last one is an ellipsis where the text was cut.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.into() } else { text.chars().take(most - 1).chain(['…']).collect() }
}
