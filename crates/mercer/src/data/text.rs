//! Text of a file as UTF-8, from UTF-8, UTF-16 or Windows-1252. One encoding holds for the whole file: where its bytes fit none, it is refused.

use std::io::{self, Read};

use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Bytes that are decoded at a time; the first of them that are not all ASCII decide.
const CHUNK: usize = 1 << 16;
/// Bytes that mean nothing in Windows-1252.
const UNDEFINED: [u8; 5] = [0x81, 0x8d, 0x8f, 0x90, 0x9d];
/// The first byte of the letters of Western Europe in UTF-8. In Windows-1252 it is `Ã`, which a sign hardly ever follows.
const LETTER: u8 = 0xc3;

/// The text of a file as UTF-8. Bytes that are not of its encoding are an error that names the line.
pub(super) struct Text<R> {
    reader: R,
    /// What the bytes are; none as long as all were ASCII.
    encoding: Option<&'static Encoding>,
    decoder: Decoder,
    raw: Vec<u8>,
    text: Vec<u8>,
    /// How much of `text` was handed on.
    done: usize,
    /// The last byte of the chunk before.
    last: u8,
    /// Ends of lines so far.
    lines: usize,
    begun: bool,
    ended: bool,
}

impl<R: Read> Text<R> {
    pub fn new(reader: R) -> Self {
        let (raw, text) = (vec![], vec![]);
        let decoder = UTF_8.new_decoder_without_bom_handling();
        Text { reader, encoding: None, decoder, raw, text, done: 0, last: 0, lines: 0, begun: false, ended: false }
    }

    /// What a user should know of the encoding, as far as it has been read.
    pub fn note(&self) -> Option<String> {
        let encoding = self.encoding.filter(|encoding| *encoding != UTF_8)?;
        let advice = "if its words look wrong, save it as UTF-8";
        let name = if encoding == WINDOWS_1252 { "Windows-1252 (Latin-1)" } else { encoding.name() };
        Some(format!("its text is not UTF-8 and was read as {name}; {advice}"))
    }

    /// Reads and decodes the next chunk.
    fn fill(&mut self) -> io::Result<()> {
        self.raw.clear();
        self.reader.by_ref().take(CHUNK as u64).read_to_end(&mut self.raw)?;
        self.ended = self.raw.len() < CHUNK;
        let start = self.decide();
        (self.begun, self.done) = (true, 0);
        if self.encoding == Some(WINDOWS_1252) {
            self.check_western()?;
        }
        self.last = self.raw.last().copied().unwrap_or(self.last);
        let raw = &self.raw[start..];
        let most = self.decoder.max_utf8_buffer_length_without_replacement(raw.len());
        self.text.resize(most.ok_or(io::ErrorKind::OutOfMemory)?, 0);
        let (result, _, written) = self.decoder.decode_to_utf8_without_replacement(raw, &mut self.text, self.ended);
        self.text.truncate(written);
        if result != DecoderResult::InputEmpty {
            let name = self.encoding.unwrap_or(UTF_8).name();
            let line = self.line_after(written);
            return Err(io::Error::other(format!(
                "line {line} holds bytes that are not {name}, as the text before them is; save the file in one encoding, such as UTF-8"
            )));
        }
        if let Some(at) = memchr::memchr(0, &self.text) {
            let line = self.line_after(at);
            return Err(io::Error::other(format!("line {line} holds a zero byte, which no text has; is it a table?")));
        }
        self.lines += memchr::memchr_iter(b'\n', &self.text).count();
        Ok(())
    }

    /// Decides on the encoding where the chunk tells it. Returns the length of a byte order mark.
    fn decide(&mut self) -> usize {
        if self.encoding.is_some() {
            return 0;
        }
        let found =
            if self.begun { None } else { Encoding::for_bom(&self.raw).or_else(|| Some((wide(&self.raw)?, 0))) };
        let ascii = Encoding::ascii_valid_up_to(&self.raw) == self.raw.len();
        let (encoding, mark) = match found {
            Some(found) => found,
            None if ascii => return 0,
            None if is_utf8(&self.raw, self.ended) => (UTF_8, 0),
            None => (WINDOWS_1252, 0),
        };
        (self.encoding, self.decoder) = (Some(encoding), encoding.new_decoder_without_bom_handling());
        mark
    }

    /// Refuses what is not Windows-1252, although it is not UTF-8 either.
    fn check_western(&self) -> io::Result<()> {
        let fail = |at: usize, what: &str| {
            let line = self.lines + 1 + memchr::memchr_iter(b'\n', &self.raw[..at]).count();
            Err(io::Error::other(format!("line {line} {what}; save the file as UTF-8")))
        };
        if let Some(at) = self.raw.iter().position(|byte| UNDEFINED.contains(byte)) {
            return fail(at, "holds bytes that are neither UTF-8 nor Windows-1252");
        }
        let before = std::iter::once(&self.last).chain(&self.raw);
        let mut pairs = before.zip(&self.raw);
        match pairs.position(|(a, b)| *a == LETTER && (0x80..0xc0).contains(b)) {
            Some(at) => fail(at, "holds UTF-8, while other lines hold bytes that are not UTF-8"),
            None => Ok(()),
        }
    }

    /// The line, counted from 1, of a place in the decoded chunk.
    fn line_after(&self, at: usize) -> usize {
        self.lines + 1 + memchr::memchr_iter(b'\n', &self.text[..at]).count()
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.done == self.text.len() && !self.ended {
            self.fill()?;
        }
        let count = buffer.len().min(self.text.len() - self.done);
        buffer[..count].copy_from_slice(&self.text[self.done..self.done + count]);
        self.done += count;
        Ok(count)
    }
}

/// UTF-16 without a byte order mark: the separators, the ends of lines and most letters of a table have a zero byte in the same
/// place, and no character is two zero bytes. Some have their zero in the other place (U+4E00, the Chinese one).
fn wide(bytes: &[u8]) -> Option<&'static Encoding> {
    let zeros = |first: usize| bytes.iter().skip(first).step_by(2).filter(|byte| **byte == 0).count();
    let [even, odd] = [zeros(0), zeros(1)];
    if bytes.chunks_exact(2).any(|unit| unit == [0, 0]) || 4 * even.max(odd) <= bytes.len() / 2 || even == odd {
        return None;
    }
    Some(if odd > even { UTF_16LE } else { UTF_16BE })
}

/// Whether a chunk is UTF-8; its last character may go on in the next one, unless it is the last.
fn is_utf8(bytes: &[u8], last: bool) -> bool {
    std::str::from_utf8(bytes).map_or_else(|e| e.error_len().is_none() && !last, |_| true)
}
