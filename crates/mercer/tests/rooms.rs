//! The rooms of each crate, bottom first: a room uses those below it, never one above. So there is no cycle either.
//!
//! A room is a module of the crate's root. What counts is every path `crate::room`, `super::room` and `$crate::room` in the code, in
//! tests too, and every item that `lib.rs` re-exports. Comments and texts do not count: documentation may point upwards.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The rooms of the engine.
const ENGINE: [&str; 10] = ["error", "syntax", "simd", "special", "rng", "dense", "compute", "group", "linalg", "net"];

/// The rooms of the library; those of the engine, which `lib.rs` names, are below all of them.
const LIBRARY: [&str; 21] = [
    "finite",
    "free_memory",
    "precision",
    "registry",
    "options",
    "budget",
    "context",
    "data",
    "bundle",
    "kernel",
    "training",
    "measures",
    "operator",
    "spectrum",
    "apply",
    "classifier",
    "laplace",
    "trajectory",
    "retrieval",
    "model",
    "learn",
];

/// The folders of sources of the workspace.
const CRATES: [&str; 7] = [
    "mercer-engine/src",
    "mercer/src",
    "mercer-lab/src",
    "mercer-figure/src",
    "mercer-cli/src",
    "mercer-python/src",
    "mercer/tests",
];

#[test]
fn a_room_of_the_engine_uses_those_below_it() {
    check("mercer-engine", &ENGINE);
}

#[test]
fn a_room_of_the_library_uses_those_below_it() {
    check("mercer", &LIBRARY);
}

/// Every source begins with what it is about.
#[test]
fn every_source_says_what_it_is_about() {
    for folder in CRATES {
        for file in files(&crates().join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let first = text.lines().next().unwrap_or_default();
            assert!(first.starts_with("//! ") && first.len() > 12, "{} begins with {first:?}", file.display());
        }
    }
}

/// What a message advises is a value ([`mercer::Advice`]), never its words alone.
#[test]
fn advice_in_messages_is_typed() {
    for advice in mercer::Advice::ALL {
        let mut given = 0;
        for file in files(&crates().join("mercer-engine/src")).into_iter().chain(files(&crates().join("mercer/src"))) {
            let text = fs::read_to_string(&file).unwrap();
            given += text.matches(&format!("advice!({advice:?})")).count();
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            let words = text.lines().filter(is_code).find(|line| line.contains(advice.phrase()));
            let defined = file.ends_with("mercer-engine/src/advice.rs");
            assert!(defined || words.is_none(), "{}: write advice!({advice:?}) in {words:?}", file.display());
        }
        assert!(given > 0, "no message gives the advice {advice:?}");
    }
}

/// The check itself finds what it is for.
#[test]
fn a_use_of_a_room_above_is_found() {
    let lib = "mod low;\npub mod high;\npub use high::Item;\nuse other_crate::thing;\n";
    let wrong = [
        "use crate::high::deep;",
        "use crate::{low::a, high};",
        "use crate::{\n    low,\n    high::{a, b},\n};",
        "use super::high;",
        "mod tests {\n    use super::super::high;\n}",
        "fn f() -> crate::high::T {}",
        "macro_rules! m { () => { $crate::high::f() } }",
        "use crate::Item;",
        "fn f<'a>(x: &'a str) -> char { 'x' } use crate::high;",
        "const T: &str = r#\"a \"quoted\" text\"#; use crate::high;",
    ];
    let right = [
        "use crate::low::a;",
        "// use crate::high;",
        "/* use /* crate::high */ crate::high */",
        "/// See [`crate::high`].\nfn f() {}",
        "const TEXT: &str = \"crate::high \\\" crate::high\";",
        "use super::a;\nmod tests {\n    use super::high;\n}",
        "use crate::thing;",
    ];
    let found = |text: &str| {
        let rooms = Rooms::of(lib, &["low", "high"]);
        rooms.wrong_uses("low", 1, text)
    };
    for text in wrong {
        assert_eq!(found(text).len(), 1, "{text}");
    }
    for text in right {
        assert_eq!(found(text), [], "{text}");
    }
    assert_eq!(found("\n\nuse crate::high;")[0].line, 3);
    assert_eq!(Rooms::of(lib, &["low", "high"]).wrong_uses("high", 1, "use crate::low;"), []);
}

/// Fails on uses in `crates/NAME/src` that go upwards, and on rooms that are not in the list.
fn check(name: &str, order: &[&str]) {
    let source = crates().join(name).join("src");
    let lib = fs::read_to_string(source.join("lib.rs")).unwrap();
    let rooms = Rooms::of(&lib, order);
    let mut wrong = vec![];
    for file in files(&source) {
        let inside = file.strip_prefix(&source).unwrap().with_extension("");
        let path: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != "mod").collect();
        if path == ["lib"] {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        assert!(order.contains(&path[0]), "the room `{}` of {name} has no place in the order of the rooms", path[0]);
        for found in rooms.wrong_uses(path[0], path.len(), &text) {
            wrong.push(format!(
                "{name}/src/{}.rs:{}: `{}` is above `{}`",
                inside.display(),
                found.line,
                found.room,
                path[0]
            ));
        }
    }
    assert!(wrong.is_empty(), "uses against the direction:\n{}", wrong.join("\n"));
}

/// The folder of all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The sources in a folder and in those below it, in a fixed order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.into_iter().flat_map(below).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

/// The order of the rooms of a crate.
struct Rooms {
    /// The place of each.
    place: HashMap<String, usize>,
    /// The room of each item that the crate's root re-exports.
    items: HashMap<String, String>,
}

/// A use of a room that is above the one that uses it.
#[derive(Debug, PartialEq)]
struct WrongUse {
    room: String,
    line: usize,
}

impl Rooms {
    /// `order` is bottom first; `lib` is the source of the crate's root.
    fn of(lib: &str, order: &[&str]) -> Rooms {
        let place: HashMap<String, usize> = order.iter().enumerate().map(|(i, room)| (room.to_string(), i)).collect();
        let mut items = HashMap::new();
        for exported in code(lib).split("pub use ").skip(1) {
            let Some((room, names)) = exported.split(';').next().unwrap().split_once("::") else { continue };
            for name in names.split(|c: char| !is_word(c)).filter(|name| !name.is_empty()) {
                items.insert(name.to_owned(), room.trim().to_owned());
            }
        }
        Rooms { place, items }
    }

    /// What a file of `room` uses from above; the file is the module at `depth` below the root.
    fn wrong_uses(&self, room: &str, depth: usize, text: &str) -> Vec<WrongUse> {
        let code = code(text);
        let above = |name: &str| {
            let used = self.items.get(name).map_or(name, String::as_str);
            (self.place.get(used)? > &self.place[room]).then(|| used.to_owned())
        };
        let line = |at: usize| 1 + code[..at].matches('\n').count();
        paths_from_root(&code, depth)
            .into_iter()
            .filter_map(|name| Some(WrongUse { room: above(&code[name.clone()])?, line: line(name.start) }))
            .collect()
    }
}

/// The places of the words that follow the root of the crate in paths: `crate::WORD`, `crate::{WORD, WORD::…}`, and as many
/// `super::` as lead from the module at `depth`, or from a module in the file, to the root.
fn paths_from_root(code: &str, depth: usize) -> Vec<Range<usize>> {
    let mut found = vec![];
    // The braces that are open; those of a module in the file are true.
    let mut open: Vec<bool> = vec![];
    let mut at = 0;
    while at < code.len() {
        let rest = &code[at..];
        if rest.starts_with('{') {
            let words: Vec<&str> = code[..at].rsplit(['{', '}', ';']).next().unwrap().split_whitespace().collect();
            open.push(words.len() > 1 && words[words.len() - 2] == "mod");
        } else if rest.starts_with('}') {
            open.pop();
        }
        let begins = !code[..at].ends_with(|c: char| is_word(c) || c == ':');
        let to_root = "super::".repeat(depth + open.iter().filter(|module| **module).count());
        let roots = ["crate::", &to_root];
        let root = roots.iter().find(|root| begins && rest.starts_with(**root)).map_or(0, |root| root.len());
        if root > 0 {
            found.extend(first_words(code, at + root));
        }
        at += root.max(rest.chars().next().map_or(1, char::len_utf8));
    }
    found
}

/// The word at `at`; those that begin each item of a list in braces.
fn first_words(code: &str, at: usize) -> Vec<Range<usize>> {
    let word = |at: usize| at..at + code[at..].find(|c| !is_word(c)).unwrap_or(code.len() - at);
    if !code[at..].starts_with('{') {
        return vec![word(at)];
    }
    let (mut found, mut depth, mut expected) = (vec![], 0, false);
    for (i, c) in code[at..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if expected && is_word(c) => found.push(word(at + i)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        expected = depth == 1 && (matches!(c, '{' | ',') || (expected && c.is_whitespace()));
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A source with its comments and texts blanked, line by line.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let hidden = hidden(rest, out.chars().last());
        if hidden == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        out.extend(rest[..hidden].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[hidden..];
    }
    out
}

/// The length of the comment, text or character that `rest` begins with; zero where it begins with code.
fn hidden(rest: &str, before: Option<char>) -> usize {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |i| from + i + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return nested_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    let raw = rest.strip_prefix('r').map(|text| text.trim_start_matches('#'));
    if raw.is_some_and(|text| text.starts_with('"')) && !before.is_some_and(|c| is_word(c) && c != 'b') {
        let hashes = rest.len() - 1 - raw.unwrap().len();
        return until(&format!("\"{}", "#".repeat(hashes)), hashes + 2);
    }
    // A character, not a lifetime: closed after one character or an escape.
    let mut after = rest.strip_prefix('\'').unwrap_or("").chars();
    match (after.next(), after.next()) {
        (Some('\\'), _) => quoted(rest, '\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 0,
    }
}

fn nested_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let step = match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (1, 2),
            [b'*', b'/', ..] => (-1, 2),
            _ => (0, 1),
        };
        depth += step.0;
        at += step.1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Up to the closing quote, past escapes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return i + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}
