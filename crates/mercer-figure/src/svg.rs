//! The SVG elements of a figure. None of them needs an `id` or a style sheet, so that one HTML page can hold any
//! number of figures.

use std::fmt::Write;

/// Text, axes and grid lines.
pub const INK: &str = "#222";
/// Axis lines and reference rules.
pub const AXIS: &str = "#666";
/// Grid lines.
pub const FAINT: &str = "#e8e8e8";

const FONTS: &str = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','Noto Sans',Arial,sans-serif";

/// A box in pixels: its left and top edge, width and height; y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

impl Rect {
    pub fn right(&self) -> f64 {
        self.x + self.w
    }

    pub fn bottom(&self) -> f64 {
        self.y + self.h
    }

    /// Left, right, top and bottom.
    pub fn edges(&self) -> [f64; 4] {
        [self.x, self.right(), self.y, self.bottom()]
    }

    /// The box with that much more on every side.
    pub fn grown(&self, by: f64) -> Rect {
        Rect { x: self.x - by, y: self.y - by, w: self.w + 2.0 * by, h: self.h + 2.0 * by }
    }

    /// Points all over the box, 20 × 20 steps.
    pub fn samples(self) -> impl Iterator<Item = (f64, f64)> {
        let place =
            move |i: i32| (self.x + self.w * f64::from(i % 21) / 20.0, self.y + self.h * f64::from(i / 21) / 20.0);
        (0..21 * 21).map(place)
    }

    /// Its position and size as SVG attributes.
    fn attributes(&self) -> String {
        format!(r#"x="{}" y="{}" width="{}" height="{}""#, num(self.x), num(self.y), num(self.w), num(self.h))
    }

    /// Whether the point lies inside or on the edge (with a tolerance of half a pixel).
    pub fn holds(&self, (x, y): (f64, f64)) -> bool {
        let slack = 0.5;
        x >= self.x - slack && x <= self.right() + slack && y >= self.y - slack && y <= self.bottom() + slack
    }
}

#[derive(Clone, Copy)]
pub struct Style {
    /// Font size in pixels.
    pub size: f64,
    /// `start`, `middle` or `end`.
    pub anchor: &'static str,
    pub fill: &'static str,
    pub bold: bool,
    /// Degrees, clockwise.
    pub turn: f64,
    /// A white outline, so that text stays legible over data.
    pub halo: bool,
}

impl Style {
    /// Plain text of that size which starts at its point.
    pub fn new(size: f64) -> Style {
        Style { size, anchor: "start", fill: INK, bold: false, turn: 0.0, halo: false }
    }

    /// Centred on its point.
    pub fn middle(self) -> Style {
        Style { anchor: "middle", ..self }
    }

    /// Ends at its point.
    pub fn end(self) -> Style {
        Style { anchor: "end", ..self }
    }
}

/// An SVG image under construction.
#[derive(Default)]
pub struct Canvas {
    body: String,
}

impl Canvas {
    /// A path from its data, with attributes such as `stroke="#666"`; empty data draws nothing.
    pub fn path(&mut self, data: &str, attributes: &str) {
        if !data.is_empty() {
            let _ = write!(self.body, r#"<path d="{data}" {attributes}/>"#);
        }
    }

    /// Markers: disc, square, diamond and triangle, filled with a white rim, and then hollow.
    pub fn markers(&mut self, points: &[(f64, f64)], shape: usize, colour: &str) {
        let outline = |&(x, y): &(f64, f64)| match shape % 4 {
            0 => format!("M{} {}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", num(x - 3.5), num(y)),
            1 => format!("M{} {}h6v6h-6z", num(x - 3.0), num(y - 3.0)),
            2 => format!("M{} {}l4.2 4.2l-4.2 4.2l-4.2-4.2z", num(x), num(y - 4.2)),
            _ => format!("M{} {}l4 7h-8z", num(x), num(y - 4.4)),
        };
        let path: String = points.iter().map(outline).collect();
        let look = match shape / 4 % 2 {
            0 => format!(r##"fill="{colour}" stroke="#fff" stroke-width=".8""##),
            _ => format!(r##"fill="#fff" stroke="{colour}" stroke-width="1.6""##),
        };
        self.path(&path, &look);
    }

    /// A filled box.
    pub fn rect(&mut self, at: Rect, attributes: &str) {
        let _ = write!(self.body, "<rect {} {attributes}/>", at.attributes());
    }

    /// An image stretched over the box, its pixels left sharp or smoothed.
    pub fn image(&mut self, at: Rect, uri: &str, sharp: bool) {
        let style = if sharp { r#" style="image-rendering:pixelated""# } else { "" };
        let at = at.attributes();
        let _ = write!(self.body, r#"<image {at} preserveAspectRatio="none"{style} href="{uri}"/>"#);
    }

    /// Text whose baseline starts, centres or ends at the point. `μ_j`, `x^2`, `k_{NTK}` are set with
    /// subscripts and superscripts.
    pub fn text(&mut self, (x, y): (f64, f64), text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        let _ = write!(self.body, r#"<text x="{}" y="{}" font-size="{}""#, num(x), num(y), num(style.size));
        if style.anchor != "start" {
            let _ = write!(self.body, r#" text-anchor="{}""#, style.anchor);
        }
        if style.fill != INK {
            let _ = write!(self.body, r#" fill="{}""#, style.fill);
        }
        if style.bold {
            self.body.push_str(r#" font-weight="600""#);
        }
        if style.turn != 0.0 {
            let _ = write!(self.body, r#" transform="rotate({} {} {})""#, num(style.turn), num(x), num(y));
        }
        if style.halo {
            self.body.push_str(r##" stroke="#fff" stroke-width="3" stroke-linejoin="round" paint-order="stroke""##);
        }
        self.body.push('>');
        let mut height = 0.0;
        for (rise, run) in runs(text) {
            let (wanted, run) = (rise * style.size, escape(&run));
            if wanted == height && rise == BASE {
                self.body.push_str(&run);
            } else {
                let (dy, size) = (num(height - wanted), num(scale(rise) * style.size));
                let _ = write!(self.body, r#"<tspan dy="{dy}" font-size="{size}">{run}</tspan>"#);
            }
            height = wanted;
        }
        self.body.push_str("</text>");
    }

    /// Draws what shows only inside the box.
    pub fn clipped(&mut self, at: Rect, draw: impl FnOnce(&mut Canvas)) {
        let [x, y, w, h] = [at.x, at.y, at.w, at.h].map(num);
        // A nested svg clips at its viewport, and needs no clipPath with an id.
        let _ = write!(self.body, r#"<svg {} viewBox="{x} {y} {w} {h}">"#, at.attributes());
        draw(self);
        self.body.push_str("</svg>");
    }

    /// The complete image on a white background; `label` is read out by screen readers.
    pub fn finish(self, width: f64, height: f64, label: &str) -> String {
        let (w, h, label, body) = (num(width), num(height), escape(label), self.body);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{w}" height="{h}" viewBox="0 0 {w} {h}" font-family="{FONTS}" fill="{INK}"><rect width="{w}" height="{h}" fill="#fff"/>{body}</svg>"##
        )
    }
}

/// A coordinate with at most one decimal: `12.5`, `-3`, `.2`.
pub fn num(value: f64) -> String {
    let tenths = (value.clamp(-1e6, 1e6) * 10.0).round() as i64; // NaN becomes 0
    let (sign, whole, tenth) = (if tenths < 0 { "-" } else { "" }, tenths.abs() / 10, tenths.abs() % 10);
    match (whole, tenth) {
        (_, 0) => format!("{sign}{whole}"),
        (0, _) => format!("{sign}.{tenth}"),
        _ => format!("{sign}{whole}.{tenth}"),
    }
}

/// Escapes text for use inside elements and attributes of XML and HTML; control characters, which XML forbids, become spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// An estimate of how wide the text will be in a common sans-serif face.
pub fn text_width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | '!' => 0.29,
        ' ' | '\u{202f}' | 'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '-' => 0.36,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.88,
        c if c.is_ascii_uppercase() => 0.68,
        c if c.is_ascii() || c < '\u{2e80}' => 0.57,
        _ => 1.0,
    };
    runs(text).iter().map(|(rise, run)| scale(*rise) * size * run.chars().map(em).sum::<f64>()).sum()
}

/// How far above the baseline text, subscripts and superscripts are, in units of the font size.
const BASE: f64 = 0.0;
const BELOW: f64 = -0.22;
const ABOVE: f64 = 0.4;

/// The font size at that height.
fn scale(rise: f64) -> f64 {
    if rise == BASE { 1.0 } else { 0.75 }
}

/// Splits text at subscripts and superscripts, each part with its height. `_{…}` and `^{…}` always count; `μ_j`, `x_1` and `x^2` count
/// because a lone symbol carries a lone index, whereas `data_set` and `col_1` stay as they are.
fn runs(text: &str) -> Vec<(f64, String)> {
    let chars: Vec<char> = text.chars().collect();
    let word = |i: usize| chars.get(i).is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let mut out: Vec<(f64, String)> = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let rise = match chars[i] {
            '_' if i > 0 => BELOW,
            '^' if i > 0 => ABOVE,
            _ => BASE,
        };
        let braced = rise != BASE && chars.get(i + 1) == Some(&'{');
        let close = if braced { chars[i..].iter().position(|&c| c == '}') } else { None };
        let lone = rise != BASE && !chars[i - 1].is_whitespace() && !(i > 1 && word(i - 2));
        if let Some(length) = close {
            out.push((rise, chars[i + 2..i + length].iter().collect()));
            i += length + 1;
        } else if lone && chars.get(i + 1).is_some_and(|c| c.is_alphanumeric()) && !word(i + 2) {
            out.push((rise, chars[i + 1].to_string()));
            i += 2;
        } else {
            match out.last_mut() {
                Some((BASE, run)) => run.push(chars[i]),
                _ => out.push((BASE, chars[i].to_string())),
            }
            i += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_markup_is_escaped() {
        let written = [12.0, 12.54, -0.24, 0.04, -0.04, f64::NAN, f64::INFINITY].map(num);
        assert_eq!(written, ["12", "12.5", "-.2", "0", "0", "0", "1000000"]);
        assert_eq!(escape("a<b & \"c\" > 'd'\u{7}"), "a&lt;b &amp; &quot;c&quot; &gt; &#39;d&#39; ");
    }

    #[test]
    fn lone_symbols_carry_indices_and_names_do_not() {
        assert_eq!(runs("μ_j"), [(BASE, "μ".into()), (BELOW, "j".into())]);
        assert_eq!(runs("10^{−3}"), [(BASE, "10".into()), (ABOVE, "−3".into())]);
        assert_eq!(runs("‖f‖_H²")[0], (BASE, "‖f‖_H²".into()));
        for name in ["data_set", "col_1", "k_ntk", "_x", "^", "a_", "a_{b"] {
            assert_eq!(runs(name), [(BASE, name.to_string())]);
        }
    }
}
