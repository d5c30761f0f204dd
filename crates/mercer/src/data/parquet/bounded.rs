//! A parquet file whose decoder reads no more than there is.

use std::fs::File;
use std::io::{self, BufReader, Read};

use crate::budget::Budget;
use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// A page that promises more bytes than this, and more than `PAGE_PER_BYTE` for each byte of the file, is refused: the decoder
/// would ask for that memory before it unpacks the page. Writers make pages of about 1 MiB.
const PAGE: u64 = 1 << 26;
const PAGE_PER_BYTE: u64 = 1 << 12;

/// A file that is never read beyond its end: a sound table has no reason to, and the decoder, which takes the end of
/// a file for a run of empty items, would otherwise count through whatever length a corrupt header promises.
pub(super) struct Bounded {
    pub file: File,
    pub len: u64,
    pub budget: Budget,
}

/// The error for a page of so many MiB.
#[derive(Debug, thiserror::Error)]
#[error("a page of {0} MiB, too large for the memory budget; allow {more_memory}", more_memory = crate::advice!(MoreMemory))]
pub(super) struct TooLarge(u64);

impl Length for Bounded {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Bounded {
    type T = BoundedReader;

    /// From `start`, where a page begins with its header.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let header = self.get_bytes(start, 16.min(self.len.saturating_sub(start)) as usize)?;
        match unpacked_size(&header) {
            Some(size) if size > PAGE && size > self.len.saturating_mul(PAGE_PER_BYTE) => {
                let (page, len) = (size >> 20, self.len);
                Err(ParquetError::General(format!("a page promises {page} MiB in a file of {len} bytes")))
            }
            // A page is in memory as it is stored, unpacked, and as values.
            Some(size) if !self.budget.allows(3 * size) => Err(ParquetError::External(TooLarge(size >> 20).into())),
            _ => self.file.get_read(start).map(BoundedReader),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} in a file of {}", self.len)));
        }
        self.file.get_bytes(start, length)
    }
}

/// The size that a page header promises for its content when unpacked: the second field, after the kind of page. Each field begins with
/// a byte of Thrift's compact protocol whose upper half says that it follows the field before; the decoder does not look at the lower
/// half, the type. Whole numbers are in groups of seven bits, the sign in the lowest one.
fn unpacked_size(header: &[u8]) -> Option<u64> {
    let next = |bytes: &[u8]| bytes.first().is_some_and(|byte| byte >> 4 == 1);
    let (_, rest) = seven_bit_groups(next(header).then(|| &header[1..])?)?;
    let (size, _) = seven_bit_groups(next(rest).then(|| &rest[1..])?)?;
    Some(size >> 1)
}

/// A whole number in groups of seven bits, lowest first, and what follows it.
fn seven_bit_groups(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let value = bytes[..=end].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, &bytes[end + 1..]))
}

pub(super) struct BoundedReader(BufReader<File>);

impl Read for BoundedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Ok(0) if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        }
    }
}
