//! Colours: categories that colour-blind readers can distinguish, and maps from a number to a colour.

/// Red, green and blue, 0 to 255.
pub type Rgb = [u8; 3];

/// Okabe and Ito's colours, the ones readable as thin lines on white first.
const FEW: [u32; 7] = [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x333333];

/// Petroff's ten colours, for figures that need more than [`FEW`].
const MANY: [u32; 10] =
    [0x3f90da, 0xffa90e, 0xbd1f01, 0x94a4a2, 0x832db6, 0xa96b59, 0xe76300, 0xb9ac70, 0x717581, 0x92dadd];

/// The colour of category `i` out of `count`, as `#rrggbb`; beyond ten they repeat.
pub fn category(i: usize, count: usize) -> String {
    format!("#{:06x}", if count <= FEW.len() { FEW[i % FEW.len()] } else { MANY[i % MANY.len()] })
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
    fn anchors(self) -> &'static [u32] {
        match self {
            Map::Viridis => &[0x440154, 0x472c7a, 0x3b518b, 0x2c718e, 0x21908d, 0x27ad81, 0x5cc863, 0xaadc32, 0xfde725],
            Map::Diverging => {
                &[0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xf7f7f7, 0xf4a582, 0xd6604d, 0xb2182b, 0x67001f]
            }
            Map::Grey => &[0xffffff, 0x000000],
        }
    }

    /// The colour at `t`, linear between anchors; `t` is clamped to [0, 1].
    pub fn at(self, t: f64) -> Rgb {
        let anchors = self.anchors();
        let last = anchors.len() - 1;
        let place = if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) } * last as f64;
        let left = (place as usize).min(last - 1);
        let weight = place - left as f64;
        let [a, b] = [left, left + 1].map(|i| anchors[i].to_be_bytes().map(f64::from));
        std::array::from_fn(|c| (a[c + 1] + weight * (b[c + 1] - a[c + 1])).round() as u8)
    }

    /// The colour at `t` as `#rrggbb`.
    pub fn hex(self, t: f64) -> String {
        let [r, g, b] = self.at(t);
        format!("#{r:02x}{g:02x}{b:02x}")
    }
}

/// Whether white text is easier to read than black text on this colour (Rec. 601 luma).
pub fn is_dark([r, g, b]: Rgb) -> bool {
    0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b) < 140.0
}

#[test]
fn maps_have_their_end_colours_and_grow_brighter_and_ten_classes_have_ten_colours() {
    assert_eq!([Map::Viridis.hex(0.0), Map::Viridis.hex(7.0)], ["#440154", "#fde725"]);
    assert_eq!([Map::Grey.at(0.5), Map::Diverging.at(0.5)], [[128; 3], [247; 3]]);
    let luma = |t: f64| Map::Viridis.at(t).iter().zip([0.299, 0.587, 0.114]).map(|(&c, w)| w * f64::from(c)).sum();
    let lumas: Vec<f64> = (0..=50).map(|i| luma(f64::from(i) / 50.0)).collect();
    assert!(lumas.windows(2).all(|pair| pair[0] < pair[1]));
    let colours: std::collections::BTreeSet<_> = (0..10).map(|i| category(i, 10)).collect();
    assert_eq!(colours.len(), 10);
}
