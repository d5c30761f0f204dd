//! Colours: categories that colour-blind readers can distinguish, and maps from a number to a colour.

/// Red, green and blue, 0 to 255.
pub type Rgb = [u8; 3];

/// Okabe and Ito's colours, the ones readable as thin lines on white first.
const FEW: [Rgb; 7] = [
    [0x00, 0x72, 0xb2],
    [0xd5, 0x5e, 0x00],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x33, 0x33, 0x33],
];

/// Petroff's ten colours, for figures that need more than [`FEW`].
const MANY: [Rgb; 10] = [
    [0x3f, 0x90, 0xda],
    [0xff, 0xa9, 0x0e],
    [0xbd, 0x1f, 0x01],
    [0x94, 0xa4, 0xa2],
    [0x83, 0x2d, 0xb6],
    [0xa9, 0x6b, 0x59],
    [0xe7, 0x63, 0x00],
    [0xb9, 0xac, 0x70],
    [0x71, 0x75, 0x81],
    [0x92, 0xda, 0xdd],
];

/// The colour of category `i` out of `count`; beyond ten they repeat.
pub fn category(i: usize, count: usize) -> Rgb {
    if count <= FEW.len() { FEW[i % FEW.len()] } else { MANY[i % MANY.len()] }
}

/// `#rrggbb`.
pub fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A map from [0, 1] to colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Dark violet to yellow, perceptually uniform: magnitudes.
    Viridis,
    /// Blue over white to red, white at zero: signed values.
    Diverging,
    /// White to black.
    Grey,
}

impl Map {
    fn anchors(self) -> &'static [Rgb] {
        match self {
            Map::Viridis => &[
                [68, 1, 84],
                [71, 44, 122],
                [59, 81, 139],
                [44, 113, 142],
                [33, 144, 141],
                [39, 173, 129],
                [92, 200, 99],
                [170, 220, 50],
                [253, 231, 37],
            ],
            Map::Diverging => &[
                [5, 48, 97],
                [33, 102, 172],
                [67, 147, 195],
                [146, 197, 222],
                [247, 247, 247],
                [244, 165, 130],
                [214, 96, 77],
                [178, 24, 43],
                [103, 0, 31],
            ],
            Map::Grey => &[[255, 255, 255], [0, 0, 0]],
        }
    }

    /// The colour at `t`, linear between anchors; `t` is clamped to [0, 1].
    pub fn at(self, t: f64) -> Rgb {
        let anchors = self.anchors();
        let last = anchors.len() - 1;
        let place = if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) } * last as f64;
        let left = (place as usize).min(last - 1);
        let weight = place - left as f64;
        let mix = |a: u8, b: u8| (f64::from(a) + weight * (f64::from(b) - f64::from(a))).round() as u8;
        std::array::from_fn(|channel| mix(anchors[left][channel], anchors[left + 1][channel]))
    }
}

/// Whether white text is easier to read than black text on this colour (Rec. 601 luma).
pub fn is_dark([r, g, b]: Rgb) -> bool {
    0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b) < 140.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_their_end_colours_and_grow_brighter() {
        assert_eq!(hex(Map::Viridis.at(0.0)), "#440154");
        assert_eq!(hex(Map::Viridis.at(7.0)), "#fde725");
        assert_eq!(Map::Grey.at(0.5), [128, 128, 128]);
        assert_eq!(Map::Diverging.at(0.5), [247, 247, 247]);
        let luma = |t: f64| Map::Viridis.at(t).iter().zip([0.299, 0.587, 0.114]).map(|(&c, w)| w * f64::from(c)).sum();
        let lumas: Vec<f64> = (0..=50).map(|i| luma(f64::from(i) / 50.0)).collect();
        assert!(lumas.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn ten_classes_have_ten_colours() {
        let mut colours: Vec<_> = (0..10).map(|i| category(i, 10)).collect();
        colours.sort();
        colours.dedup();
        assert_eq!(colours.len(), 10);
    }
}
