//! Changes of bytes and texts.

use mercer::rng::Rng;
use std::ops::Range;

/// Whole numbers and texts of numbers at which programs break.
const WHOLE: [u64; 14] = [0, 1, 2, 7, 127, 128, 255, 256, 65_535, 65_536, 1 << 31, u32::MAX as u64, 1 << 62, u64::MAX];
pub const NUMBERS: [&str; 20] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "63",
    "0.5",
    "1e-320",
    "1e-300",
    "1e300",
    "1e308",
    "-1e308",
    "1e400",
    "nan",
    "inf",
    "4294967296",
    "9223372036854775807",
    "18446744073709551616",
    "100000000000",
    "1048577",
];

/// Longest input that is made by putting pieces in.
const LONGEST: usize = 1 << 17;

/// `input` with one change or up to four. `others` are further inputs to take pieces from, `tokens` the words of the language.
pub fn mutated(rng: &mut Rng, input: &[u8], others: &[Vec<u8>], tokens: &[&str]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + rng.below(2) * rng.below(4) {
        change(rng, &mut bytes, others, tokens);
    }
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, others: &[Vec<u8>], tokens: &[&str]) {
    match rng.below(14) {
        0 | 1 => flip(rng, bytes),
        2 => set_whole(rng, bytes),
        3 => bytes.truncate(place(rng, bytes)),
        4 => drop(bytes.drain(range(rng, bytes, 40))),
        5 => {
            let more: Vec<u8> = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
            insert(rng, bytes, &more);
        }
        6 => {
            let piece = bytes[range(rng, bytes, 200)].to_vec();
            insert(rng, bytes, &piece);
        }
        7 if !others.is_empty() => {
            let other = &others[rng.below(others.len())];
            let piece = other[range(rng, other, 2000)].to_vec();
            let at = range(rng, bytes, 2000);
            bytes.splice(at, piece);
        }
        8 | 9 => replace_number(rng, bytes),
        10 | 11 if !tokens.is_empty() => {
            let token = tokens[rng.below(tokens.len())];
            insert(rng, bytes, token.as_bytes());
        }
        12 if !tokens.is_empty() => repeat_token(rng, bytes, tokens),
        13 if rng.below(8) == 0 => *bytes = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(),
        _ => flip(rng, bytes),
    }
}

/// A place in the bytes; half of them are among the first hundred, where headers are.
fn place(rng: &mut Rng, bytes: &[u8]) -> usize {
    let most = if rng.below(2) == 0 { bytes.len().min(100) } else { bytes.len() };
    rng.below(most + 1)
}

fn range(rng: &mut Rng, bytes: &[u8], longest: usize) -> Range<usize> {
    let start = place(rng, bytes);
    start..(start + rng.below(longest + 1)).min(bytes.len())
}

fn insert(rng: &mut Rng, bytes: &mut Vec<u8>, piece: &[u8]) {
    let at = place(rng, bytes);
    bytes.splice(at..at, piece.iter().copied());
}

fn flip(rng: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..1 + rng.below(4) {
        let at = place(rng, bytes);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << rng.below(8);
        }
    }
}

/// A whole number of one, two, four or eight bytes in either order.
fn set_whole(rng: &mut Rng, bytes: &mut [u8]) {
    let (value, size, at) = (WHOLE[rng.below(WHOLE.len())], 1 << rng.below(4), place(rng, bytes));
    let little = value.to_le_bytes();
    if let Some(to) = bytes.get_mut(at..at + size) {
        to.copy_from_slice(&little[..size]);
        if rng.below(2) == 0 {
            to.reverse();
        }
    }
}

/// Another number in the place of one that is written in digits.
fn replace_number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let from = place(rng, bytes);
    let digit = |b: &u8| b.is_ascii_digit();
    let Some(start) = bytes[from..].iter().position(digit).map(|i| from + i) else { return };
    let end = start + bytes[start..].iter().take_while(|b| digit(b) || matches!(b, b'.' | b'e')).count();
    bytes.splice(start..end, NUMBERS[rng.below(NUMBERS.len())].bytes());
}

/// A word again and again in one place: what nests, nests deep.
fn repeat_token(rng: &mut Rng, bytes: &mut Vec<u8>, tokens: &[&str]) {
    let token = tokens[rng.below(tokens.len())].as_bytes();
    let times = 1usize << rng.below(16);
    let most = LONGEST.saturating_sub(bytes.len()) / token.len().max(1);
    insert(rng, bytes, &token.repeat(times.min(most)));
}
