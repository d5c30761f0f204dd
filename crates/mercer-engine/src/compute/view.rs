//! One view of a row on the CPU. `cuda/views.cu` has the same formulas.

use super::augment::{View, ViewLayout};

/// Largest radius of a blur, in pixels.
const RADIUS: i64 = 4;

/// Shares of red, green and blue in the brightness of a pixel.
const LUMINANCE: [f32; 3] = [0.299, 0.587, 0.114];

/// Makes the view `numbers` of the row `x` `[d]`.
pub(super) fn make(x: &[f32], numbers: &[f32; View::NUMBERS], layout: &ViewLayout, out: &mut [f32]) {
    let [_, _, _, _, _, _, _, _, _, _, blur, solarise, ..] = *numbers;
    match layout.image {
        None => out.copy_from_slice(x),
        Some(image) => {
            show_part(x, numbers, image, out);
            colours(numbers, image, layout.white, out);
            if blur > 0.0 {
                let sharp = out.to_vec();
                blurred(&sharp, blur, image, out);
            }
            out.iter_mut().filter(|v| **v >= solarise * layout.white).for_each(|v| *v = layout.white - *v);
        }
    }
    let centre = layout.centre.host();
    for (i, (v, centre)) in out.iter_mut().zip(centre).enumerate() {
        *v = disturbed((*v - centre) / layout.scale, numbers, i as u32);
    }
}

/// A part of the image, brought to the size of the whole by linear interpolation, and mirrored.
fn show_part(x: &[f32], numbers: &[f32; View::NUMBERS], [_, height, width]: [usize; 3], out: &mut [f32]) {
    let [top, left, tall, wide, mirror, ..] = *numbers;
    // The pixel before a place, the one after it, and how far it is between them.
    let between = |first: f32, size: f32, i: usize, n: usize| {
        let at = ((i as f32 + 0.5) * (size / n as f32) - 0.5).clamp(0.0, size - 1.0);
        let before = at.floor();
        (((first + before) as usize), (first + (before + 1.0).min(size - 1.0)) as usize, at - before)
    };
    for (line, out) in out.chunks_exact_mut(width).enumerate() {
        let (up, down, v) = between(top, tall, line % height, height);
        let plane = &x[line / height * height * width..][..height * width];
        for (col, out) in out.iter_mut().enumerate() {
            let col = if mirror > 0.5 { width - 1 - col } else { col };
            let (near, far, u) = between(left, wide, col, width);
            let [a, b] = [up, down].map(|row| (1.0 - u) * plane[row * width + near] + u * plane[row * width + far]);
            *out = (1.0 - v) * a + v * b;
        }
    }
}

/// Brightness, then contrast about the mean brightness, saturation, hue and the loss of colours.
fn colours(numbers: &[f32; View::NUMBERS], [channels, height, width]: [usize; 3], white: f32, out: &mut [f32]) {
    let [_, _, _, _, _, brightness, contrast, saturation, hue, grey, ..] = *numbers;
    let (plane, share) = (height * width, 1.0 / channels as f32);
    out.iter_mut().for_each(|v| *v = (*v * brightness).clamp(0.0, white));
    if contrast != 1.0 {
        let shares = |c: usize| if channels == 3 { LUMINANCE[c] } else { share };
        let sum: f64 = out.iter().enumerate().map(|(i, v)| f64::from(shares(i / plane) * v)).sum();
        let mean = (sum / plane as f64) as f32;
        out.iter_mut().for_each(|v| *v = (mean + contrast * (*v - mean)).clamp(0.0, white));
    }
    if channels != 3 || (saturation == 1.0 && hue == 0.0 && grey < 0.5) {
        return;
    }
    let (sine, cosine) = hue.sin_cos();
    for i in 0..plane {
        let mut rgb = [out[i], out[plane + i], out[2 * plane + i]];
        let luminance = |[r, g, b]: [f32; 3]| LUMINANCE[0] * r + LUMINANCE[1] * g + LUMINANCE[2] * b;
        let y = luminance(rgb);
        rgb = rgb.map(|v| (y + saturation * (v - y)).clamp(0.0, white));
        if hue != 0.0 {
            // The colour in the plane of equal brightness, turned.
            let (y, [r, g, b]) = (luminance(rgb), rgb);
            let (p, q) = (0.596 * r - 0.274 * g - 0.322 * b, 0.211 * r - 0.523 * g + 0.312 * b);
            let (p, q) = (cosine * p - sine * q, sine * p + cosine * q);
            rgb = [y + 0.956 * p + 0.621 * q, y - 0.272 * p - 0.647 * q, y - 1.106 * p + 1.703 * q];
            rgb = rgb.map(|v| v.clamp(0.0, white));
        }
        if grey > 0.5 {
            rgb = [luminance(rgb); 3];
        }
        (out[i], out[plane + i], out[2 * plane + i]) = (rgb[0], rgb[1], rgb[2]);
    }
}

/// A Gaussian blur of this deviation over `2·RADIUS + 1` pixels at most each way; the edge goes on beyond the image.
fn blurred(x: &[f32], deviation: f32, [_, height, width]: [usize; 3], out: &mut [f32]) {
    let radius = ((2.0 * deviation).ceil() as i64).min(RADIUS);
    let weight = |step: i64| (-0.5 * (step as f32 / deviation).powi(2)).exp();
    let at = |i: usize, step: i64, n: usize| (i as i64 + step).clamp(0, n as i64 - 1) as usize;
    for (i, out) in out.iter_mut().enumerate() {
        let plane = &x[i / (height * width) * height * width..];
        let (row, col) = (i / width % height, i % width);
        let (mut sum, mut weights) = (0.0, 0.0);
        for down in -radius..=radius {
            for across in -radius..=radius {
                let w = weight(down) * weight(across);
                sum += w * plane[at(row, down, height) * width + at(col, across, width)];
                weights += w;
            }
        }
        *out = sum / weights;
    }
}

/// Cell i of a standardized row, with noise, hidden or dropped.
fn disturbed(v: f32, numbers: &[f32; View::NUMBERS], i: u32) -> f32 {
    let [.., noise, hidden, dropped, cells, columns] = *numbers;
    let (cells, columns) = (cells as u32, columns as u32);
    if uniform(cells, i, 0) < hidden || uniform(columns, i, 1) < dropped {
        return 0.0;
    }
    if noise == 0.0 {
        return v;
    }
    let (u, w) = (1.0 - uniform(cells, i, 2), uniform(cells, i, 3));
    v + noise * (-2.0 * u.ln()).sqrt() * (std::f32::consts::TAU * w).cos()
}

/// A number in [0, 1) that follows from a seed, a column and a purpose: the same on every device.
fn uniform(seed: u32, column: u32, purpose: u32) -> f32 {
    let mut h = seed ^ column.wrapping_mul(0x9e37_79b9) ^ purpose.wrapping_mul(0x85eb_ca6b);
    for factor in [0x7feb_352d, 0x846c_a68b] {
        h = (h ^ (h >> 16)).wrapping_mul(factor);
    }
    h = h.wrapping_add(seed.wrapping_mul(0xc2b2_ae35));
    h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
    h = (h ^ (h >> 12)).wrapping_mul(0x297a_2d39);
    ((h ^ (h >> 15)) >> 8) as f32 / 16_777_216.0
}
