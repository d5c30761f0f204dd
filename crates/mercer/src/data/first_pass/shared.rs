//! A first pass that the ranks of a group share: each has looked at its own rows, and all learn what the whole file holds.

use super::{FirstPass, Kept, MOST_NUMBERS, Seen, SeenTarget};
use crate::data::cells::Cells;
use crate::data::moment_tree::{MomentTree, Node};
use crate::data::scale::Moments;
use crate::group::{Group, bytes, numbers};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a rank tells the others, but for the numbers of the rows that it keeps.
#[derive(Serialize, Deserialize)]
struct Told {
    columns: Vec<ToldColumn>,
    target: Option<ToldTarget>,
    unlabelled: usize,
    /// The numbers of the rows that it keeps.
    sample: Vec<usize>,
    held: Vec<usize>,
}

/// A column.
#[derive(Serialize, Deserialize)]
struct ToldColumn {
    moments: Vec<ToldNode>,
    missing: u64,
    words: ToldWords,
}

/// Level, place, count, and the bits of the other moments: a number that is not finite has no JSON.
type ToldNode = (u32, u64, u64, [u64; 4]);

fn told(node: &Node) -> ToldNode {
    let Moments { count, min, max, mean, squares } = node.moments;
    (node.level, node.place, count, [min, max, mean, squares].map(f64::to_bits))
}

fn understood((level, place, count, bits): ToldNode) -> Node {
    let [min, max, mean, squares] = bits.map(f64::from_bits);
    Node { level, place, moments: Moments { count, min, max, mean, squares } }
}

/// Words in the order of their first appearance, and the rows of each.
#[derive(Serialize, Deserialize)]
struct ToldWords(Vec<(String, u64)>);

#[derive(Serialize, Deserialize)]
struct ToldTarget {
    words: ToldWords,
    whole: Vec<(i64, u64)>,
    /// A row, and the bits of its number.
    other: Option<(usize, u64)>,
}

/// The place in the whole file of each word of one rank, by the order of its first appearance there.
type Places = Vec<f64>;

impl<'a> FirstPass<'a> {
    /// The pass over all rows, from those of each rank, merged in the order of the ranks: to the bits of one process. Collective.
    pub fn over(self, group: Group<'_>) -> Result<FirstPass<'a>> {
        if group.is_single() {
            return Ok(self);
        }
        let told = serde_json::to_vec(&self.told()).expect("plain data");
        let told = group.all_gather(&told)?;
        let kept = group.all_gather(bytes(&self.kept_numbers()))?;
        let mut all = self.emptied();
        for (told, kept) in told.iter().zip(&kept) {
            let told: Told = serde_json::from_slice(told).expect("what a rank of the same program wrote");
            all.add_rank(told, &numbers(kept));
        }
        refuse_unlabelled(group, all.unlabelled)?;
        (all.rows, all.trained) = (all.blocks.n(), all.blocks.n() - all.held.rows.len());
        Ok(all)
    }

    fn told(&self) -> Told {
        let column = |seen: &Seen| ToldColumn {
            moments: seen.moments.nodes.iter().map(told).collect(),
            missing: seen.missing,
            words: ToldWords::new(&seen.words, &seen.counts),
        };
        let target = |seen: &SeenTarget| ToldTarget {
            words: ToldWords::new(&seen.words, &seen.counts),
            whole: seen.whole.iter().map(|(class, count)| (*class, *count)).collect(),
            other: seen.other.map(|(row, value)| (row, value.to_bits())),
        };
        Told {
            columns: self.columns.iter().map(column).collect(),
            target: self.target.as_ref().map(target),
            unlabelled: self.unlabelled,
            sample: self.sample.rows.clone(),
            held: self.held.rows.clone(),
        }
    }

    /// The numbers of the rows that this rank keeps.
    fn kept_numbers(&self) -> Vec<f64> {
        let Kept { values, target, .. } = &self.sample;
        [values, target, &self.held.values, &self.held.target].map(|numbers| &numbers[..]).concat()
    }

    /// The same pass before its first row.
    fn emptied(self) -> FirstPass<'a> {
        let column = |seen: &Seen| Seen {
            moments: MomentTree::default(),
            missing: 0,
            words: seen.words.emptied(),
            counts: vec![],
        };
        let columns = self.columns.iter().map(column).collect();
        let target = self.target.map(|seen| SeenTarget {
            words: seen.words.emptied(),
            counts: vec![],
            whole: Default::default(),
            other: None,
            ..seen
        });
        FirstPass { columns, target, unlabelled: 0, sample: Kept::default(), held: Kept::default(), ..self }
    }

    /// Adds what the next rank has seen, with the numbers of the rows that it keeps.
    fn add_rank(&mut self, told: Told, numbers: &[f64]) {
        self.unlabelled += told.unlabelled;
        let of_column = |(seen, told): (&mut Seen, ToldColumn)| {
            told.moments.into_iter().for_each(|node| seen.moments.push(understood(node)));
            seen.missing += told.missing;
            told.words.into(&mut seen.words, &mut seen.counts)
        };
        let places: Vec<Places> = self.columns.iter_mut().zip(told.columns).map(of_column).collect();
        let of_target = match (&mut self.target, told.target) {
            (Some(seen), Some(told)) => seen.add_rank(told),
            _ => vec![],
        };
        let mut numbers = numbers.iter().copied();
        let has_target = self.target.is_some();
        for (kept, rows) in [(&mut self.sample, told.sample), (&mut self.held, told.held)] {
            for _ in &rows {
                kept.values.extend(places.iter().map(|places| placed(places, numbers.next().expect("whole rows"))));
            }
            let targets = numbers.by_ref().take(if has_target { rows.len() } else { 0 });
            kept.target.extend(targets.map(|value| placed(&of_target, value)));
            kept.rows.extend(rows);
        }
    }
}

/// A number, or the place in the whole file of the word that it is.
fn placed(places: &Places, value: f64) -> f64 {
    if places.is_empty() || value.is_nan() { value } else { places[value as usize] }
}

impl SeenTarget {
    fn add_rank(&mut self, told: ToldTarget) -> Places {
        let other = told.other.map(|(row, bits)| (row, f64::from_bits(bits)));
        let first = told.whole.first().map_or(0.0, |(class, _)| *class as f64);
        told.whole.into_iter().for_each(|(class, count)| *self.whole.entry(class).or_insert(0) += count);
        // Whole numbers of all ranks may be too many for classes where those of each are not.
        let many = (self.whole.len() > MOST_NUMBERS).then_some((0, first));
        self.other = self.other.or(other).or(many);
        told.words.into(&mut self.words, &mut self.counts)
    }
}

impl ToldWords {
    fn new(words: &Cells, counts: &[u64]) -> ToldWords {
        ToldWords(words.in_order_of_appearance().into_iter().map(String::from).zip(counts.iter().copied()).collect())
    }

    /// Adds the words to those of the ranks before.
    fn into(self, words: &mut Cells, counts: &mut Vec<u64>) -> Places {
        let mut add = |(word, count): (String, u64)| {
            let place = words.word(&word);
            counts.resize(words.word_count(), 0);
            counts[place as usize] += count;
            place
        };
        self.0.into_iter().map(&mut add).collect()
    }
}

/// Refuses rows without a target on several ranks: none knows how many there are before its own.
pub(in crate::data) fn refuse_unlabelled(group: Group<'_>, unlabelled: usize) -> Result<()> {
    crate::fail_if!(
        !group.is_single() && unlabelled > 0; Error::input(format!(
            "{unlabelled} rows have no target, and several ranks cannot leave them out; remove them from the file"
        ))
    );
    Ok(())
}
