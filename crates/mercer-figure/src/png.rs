//! Small indexed images inside an SVG: a PNG (stored, not compressed) as a `data:` address.

use super::palette::{Map, Rgb};

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

    let mut header = Vec::from((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    header.extend([8, 3, 0, 0, 0]); // eight bits, indexed colour
    let mut png = Vec::from(*b"\x89PNG\r\n\x1a\n");
    chunk(&mut png, b"IHDR", &header);
    chunk(&mut png, b"PLTE", &palette.concat());
    chunk(&mut png, b"tRNS", &[0]);
    chunk(&mut png, b"IDAT", &zlib_stored(&scanlines));
    chunk(&mut png, b"IEND", &[]);
    format!("data:image/png;base64,{}", base64(&png))
}

fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], body: &[u8]) {
    out.extend((body.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(kind);
    out.extend(body);
    let checksum = crc32(&out[start..]);
    out.extend(checksum.to_be_bytes());
}

/// Deflate's stored blocks in a zlib envelope.
fn zlib_stored(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let blocks = bytes.chunks(65535);
    let last = blocks.len().saturating_sub(1);
    for (i, block) in blocks.enumerate() {
        let size = block.len() as u16;
        out.push(u8::from(i == last));
        out.extend(size.to_le_bytes());
        out.extend((!size).to_le_bytes());
        out.extend(block);
    }
    out.extend(adler32(bytes).to_be_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { (c >> 1) ^ 0xedb8_8320 } else { c >> 1 })
    })
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_and_base64_match_their_published_vectors() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
        for (plain, coded) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn stored_blocks_hold_long_input() {
        let long = vec![7; 70_000];
        let packed = zlib_stored(&long);
        assert_eq!(packed.len(), 2 + 2 * 5 + 70_000 + 4);
        assert_eq!((packed[2], packed[2 + 5 + 65535]), (0, 1));
    }
}
