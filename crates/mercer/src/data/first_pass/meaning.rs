//! What the target of a file is: numbers or classes, by what its rows hold and what was asked for.

use super::{MOST_NUMBERS, SeenTarget};
use crate::Result;
use crate::data::dataset::Target;
use crate::data::schema::SchemaTarget;
use crate::data::table::{Table, Task, few_classes};

/// What the target of a file is.
pub(super) struct Meaning {
    pub name: String,
    pub position: Option<usize>,
    pub width: Option<usize>,
    values: Values,
    /// Rows to fit of each class.
    pub counts: Vec<u64>,
}

enum Values {
    /// As they are read.
    Numbers,
    /// Words that are numbers, by the order of their first appearance.
    Named(Vec<f64>),
    /// Whole numbers that are classes, in increasing order.
    Whole(Vec<i64>),
    /// Words that are classes: their names, and the position there of each by the order of its first appearance.
    Words(Vec<String>, Vec<f64>),
}

impl SeenTarget {
    /// As [`Table::with_task`], of `rows` rows.
    pub fn meaning(self, outline: &Table, rows: usize, task: Option<Task>) -> Result<Meaning> {
        let SeenTarget { name, position, width, words, counts: by_order, whole, other } = self;
        let (mut counts, classify) = (vec![], task == Some(Task::Classification));
        let values = if words.are_words() {
            let Target::Classes { labels, names } = words.into_target((0..by_order.len()).map(|i| i as f64).collect())
            else {
                unreachable!("words are classes")
            };
            let numbers: Option<Vec<f64>> = labels.iter().map(|&at| names[at].parse().ok()).collect();
            match (task, numbers) {
                (Some(Task::Regression), Some(numbers)) => Values::Named(numbers),
                (Some(Task::Regression), None) => return Err(outline.fail(no_numbers(&name, &names))),
                _ => {
                    counts = vec![0; names.len()];
                    labels.iter().zip(&by_order).for_each(|(&at, count)| counts[at] = *count);
                    Values::Words(names, labels.into_iter().map(|at| at as f64).collect())
                }
            }
        } else {
            if let (true, Some((row, value))) = (classify, other) {
                // The words of the in-memory reader, and of the row in the file.
                let refused = Target::Values(vec![value]).as_classes().err();
                let what = refused.map_or_else(
                    || {
                        format!(
                            "holds more than {MOST_NUMBERS} different whole numbers in its target: too many for classes"
                        )
                    },
                    |e| e.to_string().replace("row 1 ", &format!("row {} ", row + 1)),
                );
                return Err(outline.fail(what));
            }
            match classify || task.is_none() && other.is_none() && few_classes(whole.len(), rows) {
                false => Values::Numbers,
                true => {
                    counts = whole.values().copied().collect();
                    Values::Whole(whole.into_keys().collect())
                }
            }
        };
        Ok(Meaning { name, position, width, values, counts })
    }
}

/// The message that words cannot be regressed on.
pub(in crate::data) fn no_numbers(name: &str, names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    format!("the target `{name}` holds words, such as `{first}`, which are no numbers to regress on")
}

impl Meaning {
    pub fn in_schema(&self) -> SchemaTarget {
        let classes = match &self.values {
            Values::Numbers | Values::Named(_) => None,
            Values::Whole(classes) => Some(classes.iter().map(i64::to_string).collect()),
            Values::Words(names, _) => Some(names.clone()),
        };
        SchemaTarget { name: self.name.clone(), position: self.position, width: self.width, classes }
    }

    /// The target of rows that were kept.
    pub fn of(&self, values: Vec<f64>) -> Target {
        match &self.values {
            Values::Numbers => Target::Values(values),
            Values::Named(numbers) => Target::Values(values.iter().map(|&order| numbers[order as usize]).collect()),
            Values::Whole(classes) => {
                let label = |v: &f64| classes.binary_search(&(*v as i64)).expect("every class was seen");
                let labels = values.iter().map(label).collect();
                Target::Classes { labels, names: classes.iter().map(i64::to_string).collect() }
            }
            Values::Words(names, positions) => {
                let labels = values.iter().map(|&order| positions[order as usize] as usize).collect();
                Target::Classes { labels, names: names.clone() }
            }
        }
    }
}
