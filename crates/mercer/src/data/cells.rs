//! The cells of a column of text: numbers, dates, words, or nothing.

use std::collections::HashMap;

use super::dataset::Target;
use super::table::Kind;

/// What stands for a missing value, in any case of letters.
const MISSING: [&str; 5] = ["na", "n/a", "?", "nan", "null"];
/// Pairs of words that mean true and false.
const TRUE_FALSE: [(&str, bool); 4] = [("true", true), ("yes", true), ("false", false), ("no", false)];

/// Bytes that a word takes beside its letters.
const WORD: u64 = 64;

pub(super) fn number(cell: &str) -> Option<f64> {
    cell.trim_ascii().parse().ok()
}

/// Whether the cell is empty or stands for a missing value.
pub(super) fn is_missing(cell: &str) -> bool {
    let cell = cell.trim_ascii();
    cell.is_empty() || MISSING.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

/// Whether the cell is more than a word: a number, a date, or true or false.
pub(super) fn is_typed(cell: &str) -> bool {
    number(cell).is_some() || days(cell).is_some() || true_or_false(cell).is_some()
}

fn true_or_false(word: &str) -> Option<bool> {
    TRUE_FALSE.iter().find(|(known, _)| word.trim_ascii().eq_ignore_ascii_case(known)).map(|(_, value)| *value)
}

/// Days since 1970-01-01 of `2024-05-31`, `2024-05-31T12:00` or `2024-05-31 12:00:00.5Z`.
pub(super) fn days(cell: &str) -> Option<f64> {
    let cell = cell.trim_ascii().as_bytes();
    let (date, time) = cell.split_at_checked(10)?;
    let digits = |text: &[u8]| -> Option<i64> {
        text.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| 10 * sum + i64::from(b - b'0')))
    };
    let (year, month, day) = match date {
        [y @ .., b'-', m1, m2, b'-', d1, d2] if y.len() == 4 => {
            (digits(y)?, digits(&[*m1, *m2])?, digits(&[*d1, *d2])?)
        }
        _ => return None,
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    // Years from March on, so that the day of a leap year is the last of its year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * m + 2) / 5 + day - 1;
    let whole = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + of_year - 719_468;
    Some(whole as f64 + part_of_day(time)?)
}

/// The part of a day that a time such as `T12:00:00` is; nothing is midnight.
fn part_of_day(time: &[u8]) -> Option<f64> {
    let time = std::str::from_utf8(time).ok()?;
    let time = time.strip_suffix('Z').unwrap_or(time);
    if time.is_empty() {
        return Some(0.0);
    }
    let mut parts = time.strip_prefix(['T', ' '])?.split(':');
    let mut part = |most: f64| -> Option<f64> {
        let text = parts.next()?;
        let plain = text.len() >= 2 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        text.parse().ok().filter(|v| plain && *v < most)
    };
    let (hours, minutes) = (part(24.0)?, part(60.0)?);
    let seconds = part(60.0);
    if parts.next().is_some() || (time.matches(':').count() == 2 && seconds.is_none()) {
        return None;
    }
    Some((hours * 3600.0 + minutes * 60.0 + seconds.unwrap_or(0.0)) / 86_400.0)
}

/// A column as far as it has been read. Its first cell that is not missing says what the others must be.
#[derive(Default)]
pub(super) struct Cells {
    content: Content,
    /// Whether every cell is a word, numbers too.
    words_only: bool,
    /// Memory of the words.
    bytes: u64,
}

#[derive(Default)]
enum Content {
    #[default]
    Unknown,
    Numbers,
    Dates,
    /// Each word with the order of its first appearance.
    Words(HashMap<String, usize>),
}

/// Why a cell does not fit.
pub(super) enum Unfit {
    Infinite,
    /// It is not what the cells before it are.
    Mixed,
}

impl Cells {
    /// A column whose cells are all words.
    pub fn words() -> Cells {
        Cells { content: Content::Words(HashMap::new()), words_only: true, bytes: 0 }
    }

    /// What the cells so far are.
    pub fn so_far(&self) -> &'static str {
        match self.content {
            Content::Unknown => "nothing",
            Content::Numbers => "numbers",
            Content::Dates => "dates",
            Content::Words(_) => "words",
        }
    }

    /// Whether the cells so far are words.
    pub fn are_words(&self) -> bool {
        matches!(self.content, Content::Words(_))
    }

    /// How many different words there are so far.
    pub fn word_count(&self) -> usize {
        if let Content::Words(known) = &self.content { known.len() } else { 0 }
    }

    /// Bytes that the words so far take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The words so far, in the order of their first appearance.
    pub fn in_order_of_appearance(&self) -> Vec<&str> {
        let Content::Words(known) = &self.content else { return vec![] };
        let mut words = vec![""; known.len()];
        known.iter().for_each(|(word, &order)| words[order] = word);
        words
    }

    /// The same column before its first cell.
    pub fn emptied(&self) -> Cells {
        if self.words_only { Cells::words() } else { Cells::default() }
    }

    /// The number that stands for a cell: itself, the days of a date, the order of a word; NaN where it is missing.
    pub fn value(&mut self, cell: &str) -> Result<f64, Unfit> {
        if let (Content::Numbers, Some(v)) = (&self.content, number(cell).filter(|v| v.is_finite())) {
            return Ok(v);
        }
        let number = if self.words_only { None } else { number(cell).filter(|v| !v.is_nan()) };
        match number {
            Some(v) if v.is_infinite() => return Err(Unfit::Infinite),
            None if is_missing(cell) => return Ok(f64::NAN),
            _ => {}
        }
        let date = if number.is_some() || self.words_only { None } else { days(cell) };
        if matches!(self.content, Content::Unknown) {
            self.content = match (number, date) {
                (Some(_), _) => Content::Numbers,
                (None, Some(_)) => Content::Dates,
                (None, None) => Content::Words(HashMap::new()),
            };
        }
        match (&mut self.content, number, date) {
            (Content::Numbers, Some(v), _) | (Content::Dates, _, Some(v)) => Ok(v),
            (Content::Words(_), None, None) => Ok(self.word(cell)),
            _ => Err(Unfit::Mixed),
        }
    }

    /// The order of the first appearance of a word.
    pub fn word(&mut self, cell: &str) -> f64 {
        if !matches!(self.content, Content::Words(_)) {
            self.content = Content::Words(HashMap::new());
        }
        let Content::Words(known) = &mut self.content else { unreachable!("just set") };
        let word = cell.trim_ascii();
        let next = known.len();
        let order = known.get(word).copied().unwrap_or(next);
        if order == next {
            known.insert(word.to_owned(), next);
            self.bytes += word.len() as u64 + WORD;
        }
        order as f64
    }

    /// The kind of the column, and what its words stand for: levels are in the order of their names, whatever that of the rows.
    pub fn finish(self) -> (Kind, Option<Vec<f64>>) {
        let known = match self.content {
            Content::Unknown | Content::Numbers => return (Kind::Number, None),
            Content::Dates => return (Kind::Date, None),
            Content::Words(known) => known,
        };
        let (levels, mut positions) = in_order(known);
        let truths: Option<Vec<bool>> = levels.iter().map(|level| true_or_false(level)).collect();
        match truths.filter(|truths| !self.words_only && !truths.is_empty()) {
            Some(truths) => {
                positions.iter_mut().for_each(|p| *p = f64::from(u8::from(truths[*p as usize])));
                (Kind::TrueFalse, Some(positions))
            }
            None => (Kind::Category(levels), Some(positions)),
        }
    }

    /// The column as a target of these `values`: numbers, or classes in the order of their names.
    pub fn into_target(self, values: Vec<f64>) -> Target {
        match self.content {
            Content::Words(known) => {
                let (names, positions) = in_order(known);
                Target::Classes { labels: values.iter().map(|v| positions[*v as usize] as usize).collect(), names }
            }
            _ => Target::Values(values),
        }
    }
}

/// Words in the order of their names, and the position there of the word that appeared first, second, …
fn in_order(known: HashMap<String, usize>) -> (Vec<String>, Vec<f64>) {
    let mut order: Vec<(String, usize)> = known.into_iter().collect();
    order.sort_unstable();
    let mut positions = vec![0.0; order.len()];
    for (new, (_, old)) in order.iter().enumerate() {
        positions[*old] = new as f64;
    }
    (order.into_iter().map(|(word, _)| word).collect(), positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days by Python's `datetime.date(y, m, d).toordinal() - 719163`.
    #[test]
    fn dates_are_days() {
        for (text, want) in [
            ("1970-01-01", 0.0),
            ("1969-12-31", -1.0),
            ("2000-02-29", 11016.0),
            ("2024-05-31", 19874.0),
            ("1900-03-01", -25508.0),
            ("0001-01-01", -719_162.0),
            ("9999-12-31", 2_932_896.0),
            ("2024-05-31T12:00:00", 19874.5),
            ("2024-05-31 06:00", 19874.25),
            (" 2024-05-31T18:00:00.0Z ", 19874.75),
        ] {
            assert_eq!(days(text), Some(want), "{text}");
        }
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-32",
            "2024-1-1",
            "20240131",
            "2024-01-01T25:00",
            "2024-01-01T12",
            "2024-01-01T12:00:xx",
            "2024-01-01x",
            "+024-01-01",
            "2024-01-01T-1:00",
            "2024-01-01T12:00:00:00",
            "",
        ] {
            assert_eq!(days(text), None, "{text}");
        }
    }

    #[test]
    fn missing_values_have_many_spellings() {
        assert!(["", " ", "NA", "n/a", "?", "NaN", "NULL"].iter().all(|cell| is_missing(cell)));
        assert!(["none", "-", "0", "no"].iter().all(|cell| !is_missing(cell)));
    }
}
