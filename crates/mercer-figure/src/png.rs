//! Small indexed images inside an SVG: a PNG as a `data:` address.

use super::palette::{Map, Rgb};
use flate2::{Compression, Crc, read::ZlibDecoder, write::ZlibEncoder};
use std::io::{Read, Write};

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

    address([width, height], 3, &scanlines, &[chunk(b"PLTE", &palette.concat()), chunk(b"tRNS", &[0])].concat())
}

/// A `data:` address of the image with these colours, row by row, `[height, width]`.
pub fn colour_uri(width: usize, height: usize, colours: &[Rgb]) -> String {
    let filtered = |row: &[Rgb]| [&[0], &row.concat()[..]].concat();
    let scanlines: Vec<u8> = colours.chunks(width.max(1)).take(height).flat_map(filtered).collect();
    address([width, height], 2, &scanlines, &[])
}

/// The address of an image of a PNG colour type with eight bits a sample, with the chunks between its header and its pixels.
fn address([width, height]: [usize; 2], colour_type: u8, scanlines: &[u8], chunks: &[u8]) -> String {
    let [w, h] = [width, height].map(|size| (size as u32).to_be_bytes());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let compressed = encoder.write_all(scanlines).and_then(|()| encoder.finish()).expect("memory can be written to");
    let png = [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", &[&w[..], &h, &[8, colour_type, 0, 0, 0]].concat()),
        chunks.to_vec(),
        chunk(b"IDAT", &compressed),
        chunk(b"IEND", &[]),
    ];
    format!("data:image/png;base64,{}", base64(&png.concat()))
}

pub fn chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut checksum = Crc::new();
    checksum.update(kind);
    checksum.update(body);
    [&(body.len() as u32).to_be_bytes()[..], kind, body, &checksum.sum().to_be_bytes()].concat()
}

/// Width, height and colours, row by row, of an image at a `data:` address that [`data_uri`] or
/// [`colour_uri`] wrote; none where it is transparent.
pub fn decoded(uri: &str) -> Option<(usize, usize, Vec<Option<Rgb>>)> {
    let png = from_base64(uri.strip_prefix("data:image/png;base64,")?)?;
    let (mut width, mut height, mut palette, mut compressed) = (0, 0, vec![], vec![]);
    let mut rest = png.get(8..)?;
    while let Some(head) = rest.get(..8) {
        let length = u32::from_be_bytes(head[..4].try_into().ok()?) as usize;
        let body = rest.get(8..8 + length)?;
        let size = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?) as usize);
        match &head[4..] {
            b"IHDR" => (width, height) = (size(0)?, size(4)?),
            b"PLTE" => palette = body.chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect(),
            b"IDAT" => compressed = body.to_vec(),
            _ => {}
        }
        rest = rest.get(12 + length..)?;
    }
    let mut scanlines = vec![];
    ZlibDecoder::new(&compressed[..]).read_to_end(&mut scanlines).ok()?;
    if palette.is_empty() {
        let rows = scanlines.chunks(3 * width + 1);
        let colours =
            rows.flat_map(|row| row.get(1..).unwrap_or_default().chunks_exact(3).map(|c| Some([c[0], c[1], c[2]])));
        return Some((width, height, colours.collect()));
    }
    let colour = |&index: &u8| if index == 0 { None } else { palette.get(usize::from(index)).copied() };
    let colours = scanlines.chunks(width + 1).flat_map(|row| row.iter().skip(1).map(colour)).collect();
    Some((width, height, colours))
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| DIGITS.iter().position(|d| *d == c).map(|d| d as u32);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let word = four.iter().try_fold(0, |word, &c| Some(word << 6 | digit(c)?))? << (6 * (4 - four.len()));
        bytes.extend_from_slice(&word.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
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
fn colours_come_back() {
    let colours = [[0, 1, 2], [255, 254, 253], [9, 9, 9], [1, 0, 128], [7, 8, 9], [3, 2, 1]];
    let (width, height, found) = decoded(&colour_uri(3, 2, &colours)).unwrap();
    assert_eq!((width, height, found), (3, 2, colours.map(Some).to_vec()));
}

#[test]
fn base64_matches_its_published_vectors() {
    for (plain, coded) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
        assert_eq!(base64(plain.as_bytes()), coded);
        assert_eq!(from_base64(coded).as_deref(), Some(plain.as_bytes()));
    }
}
