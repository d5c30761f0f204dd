//! Options by name: what an option may be, which method or estimator takes it, and the values that were given.
//!
//! A method or an estimator declares its options as [`Opt`]s beside its code, and an [`Entry`] that is built from their
//! values. The program makes its arguments and its help from them, Python its checks; both hand over values as [`Options`].

use crate::error::did_you_mean;
use crate::{Error, Result, fail_if};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The values that an option takes. Example: [`Entry`].
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number from this one on.
    Count(u64),
    /// A whole number from the first to the second.
    Between(u64, u64),
    /// A finite number above zero.
    Positive,
    /// A finite number from zero.
    NonNegative,
    /// What the kind takes, or one of these words.
    Or(&'static Kind, &'static [&'static str]),
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
    /// A text, such as a network.
    Text,
    /// The path of a file to write.
    File,
    /// True where it is given.
    Flag,
    /// `balanced`, or a number above zero for some classes: `rare=5,other=1`, or pairs of a name and its number.
    ClassWeights,
}

impl Kind {
    /// Reads a value of a command line; the error is what it must be.
    ///
    /// ```
    /// use mercer::options::Kind;
    /// assert_eq!(Kind::Count(1).parse("20").unwrap(), 20);
    /// assert_eq!(Kind::Positive.parse("-1").unwrap_err(), "it must be a number above 0");
    /// assert_eq!(Kind::Or(&Kind::Positive, &["auto"]).parse("auto").unwrap(), "auto");
    /// ```
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self {
            Kind::Count(_) | Kind::Between(..) => text.parse::<u64>().map(Value::from).unwrap_or(Value::Null),
            Kind::Positive | Kind::NonNegative => text.parse::<f64>().map(Value::from).unwrap_or(Value::Null),
            Kind::Or(_, words) if words.contains(&text) => Value::from(text),
            Kind::Or(kind, _) => kind.parse(text).unwrap_or(Value::Null),
            Kind::Word(_) | Kind::Text | Kind::File => Value::from(text),
            Kind::Flag => Value::from(true),
            Kind::ClassWeights if text == BALANCED => Value::from(text),
            Kind::ClassWeights => {
                text.split(',').map(name_and_number).collect::<Option<Value>>().unwrap_or(Value::Null)
            }
        };
        self.check(&value).map(|()| value)
    }

    /// Whether it takes the value; the error is what it must be.
    fn check(&self, value: &Value) -> Result<(), String> {
        let taken = match self {
            Kind::Count(least) => value.as_u64().is_some_and(|v| v >= *least),
            Kind::Between(least, most) => value.as_u64().is_some_and(|v| (*least..=*most).contains(&v)),
            Kind::Positive => value.as_f64().is_some_and(|v| v.is_finite() && v > 0.0),
            Kind::NonNegative => value.as_f64().is_some_and(|v| v.is_finite() && v >= 0.0),
            Kind::Or(kind, words) => {
                value.as_str().is_some_and(|word| words.contains(&word)) || kind.check(value).is_ok()
            }
            Kind::Word(words) => {
                let (words, given) = (words(), value.as_str().unwrap_or_default());
                if !words.contains(&given) {
                    let near = did_you_mean(given, words.iter().copied());
                    return Err(format!("it is not a word that the option knows{near}"));
                }
                true
            }
            Kind::Text | Kind::File => value.is_string(),
            Kind::Flag => value.is_boolean(),
            Kind::ClassWeights => {
                value.as_str() == Some(BALANCED) || value.as_array().is_some_and(|pairs| pairs.iter().all(is_weight))
            }
        };
        if taken { Ok(()) } else { Err(format!("it must be {}", self.values())) }
    }

    /// The values that it takes, in words.
    fn values(&self) -> String {
        match self {
            Kind::Count(least) => format!("a whole number from {least}"),
            Kind::Between(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Positive => "a number above 0".into(),
            Kind::NonNegative => "a number of at least 0".into(),
            Kind::Or(kind, words) => format!("{}, or {}", kind.values(), words.join(" or ")),
            Kind::Word(words) => words().join(" or "),
            Kind::Text | Kind::File => "a text".into(),
            Kind::Flag => "true or false".into(),
            Kind::ClassWeights => "balanced, or numbers above 0 such as rare=5,other=1".into(),
        }
    }
}

/// The word for weights by which every class counts the same.
const BALANCED: &str = "balanced";

/// `["rare", 5]` of `rare=5`.
fn name_and_number(text: &str) -> Option<Value> {
    let (name, weight) = text.rsplit_once('=')?;
    Some(Value::from(vec![Value::from(name.trim()), Value::from(weight.trim().parse::<f64>().ok()?)]))
}

/// Whether a value is a name with a number above zero.
fn is_weight(pair: &Value) -> bool {
    let pair = pair.as_array().map_or(&[][..], Vec::as_slice);
    matches!(pair, [name, weight] if name.is_string() && weight.as_f64().is_some_and(|w| w.is_finite() && w > 0.0))
}

/// An option. Example: [`Entry`].
#[derive(Debug)]
pub struct Opt {
    /// Its name as the program writes it, without the dashes in front.
    pub name: &'static str,
    /// Other names of it that the help shows.
    pub also: &'static [&'static str],
    /// Other spellings of it, which the help does not show.
    pub aliases: &'static [&'static str],
    /// What stands for its value in the help.
    pub value: &'static str,
    /// What it does, and what is done without it.
    pub help: &'static str,
    /// The values that it takes.
    pub kind: Kind,
}

impl Opt {
    /// An option by one name. Example: [`Entry::new`].
    pub const fn new(name: &'static str, value: &'static str, kind: Kind, help: &'static str) -> Opt {
        Opt { name, also: &[], aliases: &[], value, help, kind }
    }

    /// A flag.
    pub const fn flag(name: &'static str, help: &'static str) -> Opt {
        Opt::new(name, "", Kind::Flag, help)
    }

    /// The option with other names that the help shows.
    pub const fn also(self, also: &'static [&'static str]) -> Opt {
        Opt { also, ..self }
    }

    /// The option with other spellings, which the help does not show.
    pub const fn or(self, aliases: &'static [&'static str]) -> Opt {
        Opt { aliases, ..self }
    }

    /// Its name among values.
    fn key(&self) -> String {
        key(self.name)
    }

    /// Whether a key is its name or another name of it.
    fn goes_by(&self, name: &str) -> bool {
        self.key() == name || self.also.iter().chain(self.aliases).any(|alias| key(alias) == name)
    }
}

fn key(name: &str) -> String {
    name.replace('-', "_")
}

/// How the names of options are written where the values came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `--checkpoint-every`
    Program,
    /// `checkpoint_every`
    Python,
}

impl Spelling {
    /// The option as a user of that face writes it.
    ///
    /// ```
    /// use mercer::options::Spelling;
    /// assert_eq!(Spelling::Program.option("checkpoint_every"), "--checkpoint-every");
    /// assert_eq!(Spelling::Python.option("checkpoint-every"), "checkpoint_every");
    /// ```
    pub fn option(self, name: &str) -> String {
        match self {
            Spelling::Program => format!("--{}", name.replace('_', "-")),
            Spelling::Python => key(name),
        }
    }

    /// The option with a value as a user of that face writes it.
    ///
    /// ```
    /// use mercer::options::Spelling;
    /// assert_eq!(Spelling::Program.set("method", "cg"), "--method cg");
    /// assert_eq!(Spelling::Python.set("method", "cg"), "method='cg'");
    /// ```
    pub fn set(self, name: &str, value: &str) -> String {
        match self {
            Spelling::Program => format!("{} {value}", self.option(name)),
            Spelling::Python => format!("{}='{value}'", self.option(name)),
        }
    }
}

/// The values of options by name. Example: [`Entry`].
#[derive(Clone, Debug)]
pub struct Options {
    values: Map<String, Value>,
    spelling: Spelling,
}

impl Options {
    /// Values by the names of their options; those that are null are not given.
    pub fn new(values: Map<String, Value>, spelling: Spelling) -> Options {
        let values = values.into_iter().filter(|(_, value)| !value.is_null());
        Options { values: values.map(|(name, value)| (key(&name), value)).collect(), spelling }
    }

    /// No values: every option as it is by default.
    pub fn none() -> Options {
        Options::new(Map::new(), Spelling::Program)
    }

    /// The value of an option, where it is given.
    pub fn take<T: DeserializeOwned>(&mut self, option: &Opt) -> Result<Option<T>> {
        let Some(value) = self.values.remove(&option.key()) else { return Ok(None) };
        let refused = |rule: &str| Error::input(format!("{} cannot be `{value}`: {rule}", self.option(option)));
        option.kind.check(&value).map_err(|rule| refused(&rule))?;
        T::deserialize(&value).map(Some).map_err(|_| refused("the number is too large"))
    }

    /// The value behind the word that is given.
    pub fn take_word<T: Copy>(&mut self, option: &Opt, words: &[(&'static str, T)]) -> Result<Option<T>> {
        let word: Option<String> = self.take(option)?;
        Ok(word.and_then(|word| words.iter().find(|(known, _)| *known == word)).map(|(_, value)| *value))
    }

    /// The number that is given; none in its place where a word such as `auto` is.
    pub fn take_number(&mut self, option: &Opt) -> Result<Option<Option<f64>>> {
        Ok(self.take::<Value>(option)?.map(|value| value.as_f64()))
    }

    /// Whether a flag is given.
    pub fn flag(&mut self, option: &Opt) -> Result<bool> {
        Ok(self.take(option)?.unwrap_or(false))
    }

    /// How the names of options are written where the values came from.
    pub fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// The option as the user writes it.
    pub fn option(&self, option: &Opt) -> String {
        self.spelling.option(option.name)
    }

    /// Adds a value that is not written as an option.
    pub fn with(mut self, option: &Opt, value: impl Into<Value>) -> Options {
        self.values.insert(option.key(), value.into());
        self
    }

    /// The first of the options that is given.
    pub fn given<'a>(&self, options: &[&'a Opt]) -> Option<&'a Opt> {
        options.iter().copied().find(|option| self.values.contains_key(&option.key()))
    }
}

/// What is known of an entry before it is built. Example: [`Entry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caps {
    /// It trains networks.
    pub trains: bool,
    /// It learns numbers.
    pub numbers: bool,
    /// It learns classes.
    pub classes: bool,
    /// It takes weights of the classes.
    pub weights: bool,
    /// Its kernel values can be computed in another precision than f64.
    pub precision: bool,
    /// It takes sampled functions in place of points, or of a network.
    pub functions: bool,
    /// It takes a network with its parameters.
    pub networks: bool,
    /// It reads rows in blocks.
    pub blocks: bool,
    /// It takes a kernel matrix in place of points.
    pub matrix: bool,
    /// Ranks of a distributed run may each hold a part of the points.
    pub shards: bool,
    /// It can leave the intercept out.
    pub no_intercept: bool,
}

/// A method or an estimator by name, with its options.
///
/// ```
/// use mercer::options::{Options, Spelling};
/// use mercer::{learn, spectrum::Size};
/// let given = serde_json::from_str(r#"{"landmarks": 40}"#).unwrap();
/// let nystrom = learn::spectra().build("nystrom", Options::new(given, Spelling::Python), &Size::new(1000, 5))?;
/// assert_eq!(nystrom.blocks().unwrap().landmarks, 40);
///
/// let given = serde_json::from_str(r#"{"landmarks": 40}"#).unwrap();
/// let refused = learn::spectra().build("exact", Options::new(given, Spelling::Python), &Size::new(1000, 5));
/// assert_eq!(refused.err().unwrap().to_string(), "the method exact does not take landmarks, which is for nystrom; leave it out");
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Entry<T: Builds> {
    /// Its name in the program, in Python and in files.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// What it does, in a few words.
    pub about: &'static str,
    /// The options that it takes.
    pub options: Vec<&'static Opt>,
    /// What is known of it before it is built.
    pub can: Caps,
    /// Builds it from the values of its options.
    pub build: Box<Build<T>>,
}

impl<T: Builds> Entry<T> {
    /// An entry by one name, without capabilities.
    ///
    /// ```
    /// use mercer::options::{Builds, Entry, Family, Kind, Opt, Options};
    /// struct Nothing;
    /// impl Builds for Nothing {
    ///     type Built = f64;
    /// }
    /// static WIDTH: Opt = Opt::new("width", "NUMBER", Kind::Positive, "how wide it is [default: 2]");
    /// let fixed = Entry::new("fixed", "one width for all", vec![&WIDTH], |o, _: &Nothing| Ok(o.take(&WIDTH)?.unwrap_or(2.0)));
    /// let family = Family { noun: "method", entries: vec![fixed], renamed: &[] };
    /// assert_eq!(family.build("fixed", Options::none(), &Nothing)?, 2.0);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn new(
        name: &'static str,
        about: &'static str,
        options: Vec<&'static Opt>,
        build: impl Fn(&mut Options, &T) -> Result<T::Built> + Send + Sync + 'static,
    ) -> Entry<T> {
        Entry { name, aliases: &[], about, options, can: Caps::default(), build: Box::new(build) }
    }
}

/// Builds a `T::Built` from the values of options and what `T` knows of the problem. Example: [`Entry`].
pub type Build<T> = dyn Fn(&mut Options, &T) -> Result<<T as Builds>::Built> + Send + Sync;

/// What entries of a family are built for. Example: [`Entry`].
pub trait Builds: Sized {
    /// What they become.
    type Built;

    /// Refuses an entry that cannot do what is asked of it.
    fn check(&self, _: &Entry<Self>) -> Result<()> {
        Ok(())
    }
}

/// All entries of one kind. Example: [`Entry`].
pub struct Family<T: Builds> {
    /// What an entry is called: `method`.
    pub noun: &'static str,
    /// The entries, in the order in which they are shown.
    pub entries: Vec<Entry<T>>,
    /// Names of options that are no more, each with the one that took its place.
    pub renamed: &'static [(&'static str, &'static str)],
}

impl<T: Builds> Family<T> {
    /// The entry of that name.
    pub fn find(&self, name: &str) -> Result<&Entry<T>> {
        let found = self.entries.iter().find(|entry| entry.name == name || entry.aliases.contains(&name));
        found.ok_or_else(|| Error::unknown(self.noun, name, self.entries.iter().map(|entry| entry.name)))
    }

    /// Every option of an entry, once.
    pub fn options(&self) -> Vec<&'static Opt> {
        let mut all: Vec<&'static Opt> = vec![];
        for option in self.entries.iter().flat_map(|entry| &entry.options) {
            if !all.iter().any(|known| known.name == option.name) {
                all.push(option);
            }
        }
        all
    }

    /// The family as data, for faces that are no Rust: its entries with what they can do and the names of their options, and every option
    /// with its help, the values that it takes, and whether it is a flag.
    pub fn describe(&self) -> Value {
        let entry = |entry: &Entry<T>| {
            let options: Vec<String> = entry.options.iter().map(|option| option.key()).collect();
            json!({ "name": entry.name, "about": entry.about, "can": entry.can, "options": options })
        };
        let option = |option: &&Opt| {
            let flag = matches!(option.kind, Kind::Flag);
            json!({ "name": option.key(), "help": option.help, "values": option.kind.values(), "flag": flag })
        };
        let (entries, options) = (self.entries.iter().map(entry), self.options());
        json!({
            "noun": self.noun,
            "entries": entries.collect::<Vec<_>>(),
            "options": options.iter().map(option).collect::<Vec<_>>(),
        })
    }

    /// The entries that take an option.
    pub fn takers(&self, option: &Opt) -> Vec<&Entry<T>> {
        self.entries.iter().filter(|entry| entry.options.iter().any(|o| o.name == option.name)).collect()
    }

    /// Refuses values of options that the entry does not take, and gives each the name of its option.
    pub fn check(&self, entry: &Entry<T>, options: Options) -> Result<Options> {
        let (spelling, mut values) = (options.spelling, Map::new());
        for (name, value) in options.values {
            let Some(option) = entry.options.iter().find(|option| option.goes_by(&name)) else {
                return Err(self.refused(entry, &name, spelling));
            };
            self.check_word(option, &value, spelling)?;
            fail_if!(
                values.insert(option.key(), value).is_some(),
                "{} is given twice; leave one of them out",
                spelling.option(option.name)
            );
        }
        Ok(Options { values, spelling })
    }

    /// Refuses a word that an option does not know where it is the name of an entry without that option.
    fn check_word(&self, option: &Opt, value: &Value, spelling: Spelling) -> Result<()> {
        let (Kind::Word(words), Some(word)) = (option.kind, value.as_str()) else { return Ok(()) };
        let has = |entry: &Entry<T>| entry.options.iter().any(|own| own.name == option.name);
        let is_entry = self.entries.iter().any(|entry| entry.name == word && !has(entry)) && !words().contains(&word);
        fail_if!(
            is_entry,
            "{} is not known, as {word} is a {}; write {}",
            spelling.set(option.name, word),
            self.noun,
            spelling.set(self.noun, word)
        );
        Ok(())
    }

    /// Why the entry does not take the option.
    fn refused(&self, entry: &Entry<T>, name: &str, spelling: Spelling) -> Error {
        let (what, said) = (format!("the {} {}", self.noun, entry.name), spelling.option(name));
        let all = self.options();
        if let Some(option) = all.iter().find(|option| option.goes_by(name)) {
            let others: Vec<&str> = self.takers(option).iter().map(|entry| entry.name).collect();
            return Error::input(format!(
                "{what} does not take {said}, which is for {}; leave it out",
                listed(&others)
            ));
        }
        if let Some((_, now)) = self.renamed.iter().find(|(old, _)| *old == name) {
            return Error::input(format!("there is no option {said}; it is {} now", spelling.option(now)));
        }
        let known: Vec<String> = entry.options.iter().map(|option| spelling.option(option.name)).collect();
        Error::input(format!("{what} has no option {said}{}", did_you_mean(&said, known.iter().map(String::as_str))))
    }

    /// Builds the entry of that name from the values of its options.
    pub fn build(&self, name: &str, options: Options, known: &T) -> Result<T::Built> {
        let entry = self.find(name)?;
        known.check(entry)?;
        (entry.build)(&mut self.check(entry, options)?, known)
    }
}

/// `a, b and c`
fn listed(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => words.concat(),
    }
}
