//! Whether the first row of a table of text names its columns.

use std::collections::{HashMap, HashSet};

use csv::StringRecord;

use super::ReadOptions;
use super::cells::{days, is_missing, is_typed, number};
use super::notation::notation;

/// The chance, at most, that a row of data is taken for a header because none of its words occurs again.
const CHANCE: f64 = 0.01;

/// Whether the first of the rows `lead` names the columns: it holds a name that the options use, or words above other things than
/// words, or words that never occur again in columns where words repeat.
pub(super) fn is_header(lead: &[StringRecord], options: &ReadOptions) -> bool {
    let Some((first, rows)) = lead.split_first() else { return false };
    if is_asked_for(first, options) {
        return true;
    }
    if !first.iter().all(is_name) && !counts_beside_words(first) {
        return false;
    }
    rows.is_empty() || is_above_values(first, rows) || first.iter().all(is_name) && never_occurs_again(first, rows)
}

/// Whether the first row counts the columns from 0 or 1, as a header of numbers does.
pub(super) fn counts_columns(first: &StringRecord) -> bool {
    first.len() >= 3 && consecutive(first.iter()) && first.iter().next().is_some_and(|c| matches!(c.trim(), "0" | "1"))
}

/// Whether a cell may name a column: it is no number and no date.
fn is_name(cell: &str) -> bool {
    number(cell).is_none_or(f64::is_nan) && days(cell).is_none()
}

/// Whether a column that the options name, other than by its position, is named in the first row.
fn is_asked_for(first: &StringRecord, options: &ReadOptions) -> bool {
    let ReadOptions { target, columns, drop, categories, .. } = options;
    let asked = target.iter().chain(columns.iter().flatten()).chain(drop).chain(categories);
    let names: HashSet<&str> = first.iter().map(str::trim).filter(|cell| is_name(cell)).collect();
    asked.into_iter().any(|word| names.contains(word.as_str()))
}

/// Whether words stand beside numbers that count on by one, as in `target,2,3,4`: a header of numbers in part.
fn counts_beside_words(first: &StringRecord) -> bool {
    let words: Vec<&str> = first.iter().filter(|cell| is_name(cell)).collect();
    !words.is_empty() && !words.iter().any(|cell| is_missing(cell)) && consecutive(first.iter().filter(|c| !is_name(c)))
}

/// Whether the cells are whole numbers, two at least, each one more than that before.
fn consecutive<'c>(cells: impl Iterator<Item = &'c str>) -> bool {
    let numbers: Option<Vec<u32>> = cells.map(|cell| cell.trim().parse().ok()).collect();
    numbers.is_some_and(|numbers| {
        numbers.len() > 1 && numbers.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(1))
    })
}

/// Whether a word of the first row stands above numbers, dates or truth values, or above words that stand for such.
fn is_above_values(first: &StringRecord, rows: &[StringRecord]) -> bool {
    let below = |j: usize| rows.iter().filter_map(move |row| row.get(j)).filter(|cell| !is_missing(cell));
    let mut nameless = first.iter().enumerate().filter(|(_, cell)| is_missing(cell));
    // A single column without a name, the first, is the index that other programs write.
    let index = nameless.next().is_some_and(|(j, cell)| j == 0 && cell.trim().is_empty()) && nameless.next().is_none();
    first.iter().enumerate().any(|(j, cell)| {
        let is_value = |cell: &str| number(cell).is_some() || days(cell).is_some();
        let names = index && j == 0 || !is_missing(cell);
        let values = is_name(cell) && below(j).next().is_some_and(is_value);
        let other = |what: fn(&str) -> bool| !what(cell) && below(j).next().is_some() && below(j).all(what);
        names && (values || other(is_typed) && is_name(cell) || other(|cell| notation(cell).is_some()))
    })
}

/// Whether no word of the first row occurs again below it, although this is unlikely for a row of data: the share of words that occur
/// once estimates the chance that a word is new (Good and Turing).
fn never_occurs_again(first: &StringRecord, rows: &[StringRecord]) -> bool {
    let distinct: HashSet<&str> = first.iter().collect();
    if distinct.len() < first.len() || first.iter().any(is_missing) {
        return false;
    }
    let mut chance = 1.0;
    for (j, name) in first.iter().enumerate() {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        rows.iter().filter_map(|row| row.get(j)).for_each(|cell| *counts.entry(cell).or_insert(0) += 1);
        if counts.contains_key(name) {
            return false;
        }
        let once = counts.values().filter(|count| **count == 1).count();
        chance *= (once + 1) as f64 / (rows.len() + 1) as f64;
    }
    chance < CHANCE
}
