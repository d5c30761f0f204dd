//! What only the schema of Arrow tells, which writers keep beside that of parquet: the columns that hold durations, to parquet whole numbers.

use std::collections::HashSet;

/// The kind of type that a duration is, in Arrow's `Schema.fbs`.
const DURATION: u8 = 18;

/// The names of the columns that hold durations, by the schema in base64 that a file keeps under `ARROW:schema`.
pub(super) fn durations(schema: &str) -> HashSet<String> {
    decoded(schema).and_then(|bytes| fields(&bytes)).unwrap_or_default()
}

/// The names of the fields that are durations, in a message: `ff ff ff ff`, its length, and a flatbuffer.
fn fields(bytes: &[u8]) -> Option<HashSet<String>> {
    let buffer = Buffer(bytes.get(8..)?);
    let message = buffer.follow(0)?;
    let schema = buffer.follow(buffer.field(message, 2)?)?;
    let fields = buffer.follow(buffer.field(schema, 1)?)?;
    let count = buffer.number(fields)?;
    let name = |i: usize| -> Option<String> {
        let field = buffer.follow(fields.checked_add(4 + 4 * i)?)?;
        if *buffer.0.get(buffer.field(field, 2)?)? != DURATION {
            return None;
        }
        let text = buffer.follow(buffer.field(field, 0)?)?;
        let text = buffer.0.get(text + 4..)?.get(..buffer.number(text)?)?;
        String::from_utf8(text.to_vec()).ok()
    };
    Some((0..count.min(bytes.len())).filter_map(name).collect())
}

/// A flatbuffer: tables of fields, found by offsets.
struct Buffer<'a>(&'a [u8]);

impl Buffer<'_> {
    fn number(&self, at: usize) -> Option<usize> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    }

    fn short(&self, at: usize) -> Option<usize> {
        let bytes = self.0.get(at..at.checked_add(2)?)?;
        Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    }

    /// Where the offset at `at` leads.
    fn follow(&self, at: usize) -> Option<usize> {
        at.checked_add(self.number(at)?)
    }

    /// Where a field of a table lies; its vtable, at a distance before it, has the offsets.
    fn field(&self, table: usize, field: usize) -> Option<usize> {
        let vtable = table.checked_add_signed(-(self.number(table)? as i32 as isize))?;
        let slot = 4 + 2 * field;
        let offset = if slot < self.short(vtable)? { self.short(vtable + slot)? } else { 0 };
        (offset > 0).then_some(table + offset)
    }
}

/// Bytes of a text in base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=').bytes().map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let digits = digits.collect::<Option<Vec<usize>>>()?;
    let bytes = |group: &[usize]| {
        let value = group.iter().fold(0, |value, digit| value << 6 | digit) << (6 * (4 - group.len()));
        [16, 8, 0].map(|shift| (value >> shift) as u8).into_iter().take(group.len() - 1).collect::<Vec<u8>>()
    };
    Some(digits.chunks(4).flat_map(bytes).collect())
}
