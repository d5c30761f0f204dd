//! Small indexed images inside an SVG: a PNG as a `data:` address.

use super::palette::{Map, Rgb};
use flate2::{Compression, Crc, write::ZlibEncoder};
use std::io::Write;

/// A `data:` address of the image whose pixels are `levels` (row by row, `[height, width]`): a value
/// in [0, 1] is coloured by `map`, a non-finite one is transparent.
pub fn data_uri(width: usize, height: usize, levels: &[f64], map: Map) -> String {
    let index = |t: f64| if t.is_finite() { 1 + (t.clamp(0.0, 1.0) * 254.0).round() as u8 } else { 0 };
    let mut scanlines = Vec::with_capacity(height * (width + 1));
    for row in levels.chunks(width.max(1)).take(height) {
        scanlines.push(0); // filter: none
        scanlines.extend(row.iter().map(|&t| index(t)));
    }
    let palette: Vec<Rgb> = std::iter::once([255; 3]).chain((0..255).map(|i| map.at(f64::from(i) / 254.0))).collect();

    let [w, h] = [width, height].map(|size| (size as u32).to_be_bytes());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let compressed = encoder.write_all(&scanlines).and_then(|()| encoder.finish()).expect("memory can be written to");
    let png = [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", &[&w[..], &h, &[8, 3, 0, 0, 0]].concat()), // eight bits, indexed colour
        chunk(b"PLTE", &palette.concat()),
        chunk(b"tRNS", &[0]),
        chunk(b"IDAT", &compressed),
        chunk(b"IEND", &[]),
    ];
    format!("data:image/png;base64,{}", base64(&png.concat()))
}

fn chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut checksum = Crc::new();
    checksum.update(kind);
    checksum.update(body);
    [&(body.len() as u32).to_be_bytes()[..], kind, body, &checksum.sum().to_be_bytes()].concat()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |w, &b| w << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let known = digit <= three.len();
            out.push(if known { DIGITS[(word >> (18 - 6 * digit)) as usize & 63] as char } else { '=' });
        }
    }
    out
}

#[test]
fn base64_matches_its_published_vectors() {
    for (plain, coded) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
}
