//! Reports: one self-contained HTML page with text, tables and figures.
//!
//! ```
//! use mercer_figure::report::{Report, Table};
//! let html = Report::new("Spectrum of MNIST")
//!     .lead("The kernel's eigenvalues fall like j^-2.")
//!     .section("Accuracy")
//!     .table(Table::new(&["method", "error"]).row(&["exact", "1.2"]).row(&["Nyström", "1.4"]).lowest(1))
//!     .command("mercer fit mnist")
//!     .html();
//! assert!(html.contains("<strong>1.2</strong>"));
//! ```

mod book;
mod table;

pub use book::Book;
pub use table::Table;

use crate::svg::escape;

const STYLE: &str = include_str!("style.css");

/// A page under construction. Its parts are shown in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Report {
    title: String,
    notice: String,
    lead: String,
    sections: Vec<String>,
    body: String,
    command: String,
}

impl Report {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Report {
        Report { title: title.into(), ..Report::default() }
    }

    /// What a reader must know before any result, such as that the run was a small one.
    pub fn notice(mut self, text: &str) -> Report {
        self.notice = escape(text);
        self
    }

    /// The paragraph under the title: the main result.
    pub fn lead(mut self, text: &str) -> Report {
        self.lead = escape(text);
        self
    }

    /// Begins a section.
    pub fn section(mut self, heading: &str) -> Report {
        let (number, heading) = (self.sections.len() + 1, escape(heading));
        self.body += &format!("<h2 id=\"section-{number}\">{heading}</h2>\n");
        self.sections.push(heading);
        self
    }

    /// Adds text; an empty line begins a new paragraph.
    pub fn text(mut self, text: &str) -> Report {
        for paragraph in text.split("\n\n").map(str::trim).filter(|p| !p.is_empty()) {
            self.body += &format!("<p>{}</p>\n", escape(paragraph));
        }
        self
    }

    /// Adds a formula in a line of its own; `^{…}` and `_{…}` raise and lower, and so do `^c` and `_c` for one character.
    pub fn formula(mut self, formula: &str) -> Report {
        self.body += &format!("<p class=\"formula\">{}</p>\n", raised(&escape(formula)));
        self
    }

    /// Adds a table.
    pub fn table(mut self, table: Table) -> Report {
        self.body += &table.html();
        self
    }

    /// Adds a figure: `svg` is the document that a plot, a grid or a gallery gives.
    pub fn figure(mut self, svg: &str, caption: &str) -> Report {
        let caption = element("figcaption", &escape(caption));
        self.body += &format!("<figure><div class=\"card\">{svg}</div>{caption}</figure>\n");
        self
    }

    /// The command that makes this page again, for the footer.
    pub fn command(mut self, command: &str) -> Report {
        self.command = escape(command);
        self
    }

    /// The page.
    pub fn html(&self) -> String {
        let (title, version) = (escape(&self.title), env!("CARGO_PKG_VERSION"));
        let paragraph = |class: &str, text: &str| match text {
            "" => String::new(),
            text => format!("<p class=\"{class}\">{text}</p>\n"),
        };
        let lead = paragraph("notice", &self.notice) + &paragraph("lead", &self.lead);
        let link = |(i, heading): (usize, &String)| format!("<a href=\"#section-{}\">{heading}</a>", i + 1);
        let contents = match self.sections.len() {
            0..4 => String::new(),
            _ => format!("<nav>{}</nav>\n", self.sections.iter().enumerate().map(link).collect::<String>()),
        };
        let again = match self.command.as_str() {
            "" => String::new(),
            command => format!("<p>To make this page again:</p>\n<pre>{command}</pre>\n"),
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n{lead}{contents}{}</main>\n\
             <footer>\n{again}<p>Written by mercer {version}.</p>\n</footer>\n</body>\n</html>\n",
            self.body
        )
    }
}

/// `x^{2}` and `x_j` as superscripts and subscripts.
fn raised(text: &str) -> String {
    let (mut out, mut letters) = (String::new(), text.chars());
    while let Some(c) = letters.next() {
        let name = match c {
            '^' => "sup",
            '_' => "sub",
            c => {
                out.push(c);
                continue;
            }
        };
        let inner = match letters.next() {
            Some('{') => letters.by_ref().take_while(|c| *c != '}').collect(),
            other => other.map(String::from).unwrap_or_default(),
        };
        out += &format!("<{name}>{}</{name}>", raised(&inner));
    }
    out
}

/// An element that is left out where it would be empty.
fn element(name: &str, content: &str) -> String {
    if content.is_empty() { String::new() } else { format!("<{name}>{content}</{name}>") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{check_balanced, samples};

    #[test]
    fn formulas_are_raised_and_lowered() {
        assert_eq!(raised("e^{−μ_j t} u_j"), "e<sup>−μ<sub>j</sub> t</sup> u<sub>j</sub>");
        assert!(Report::new("a").formula("x^2 < 1").html().contains("x<sup>2</sup> &lt; 1"));
    }

    #[test]
    fn the_page_is_well_formed_and_self_contained() {
        let figures = samples();
        let figure = |name: &str| &figures.iter().find(|s| s.0 == name).unwrap().1;
        let table = Table::new(&["method", "n", "error, %", "seconds"])
            .row(&["exact", "60 000", "1.21 ± 0.03", "412"])
            .row(&["random features", "60 000", "—", "4.1"])
            .lowest(2)
            .caption("Mean and standard deviation of five splits; the best of each column is bold.");
        let html = Report::new("Kernels on digits")
            .notice("A quick run.")
            .lead("Both solvers reach the same error.")
            .section("Setting")
            .text("60 000 rows, the kernel arc-cosine & <NTK>, seed 7.")
            .section("Accuracy")
            .text("Every solver sees the same folds.\n\nThe ridge is chosen on the first fold alone.")
            .table(table)
            .figure(figure("bars"), "Test error by kernel and number of samples.")
            .section("Spectrum")
            .figure(figure("spectrum"), "Eigenvalues against their index.")
            .section("Embedding")
            .figure(figure("gallery"), "")
            .command("mercer report --data digits --kernel 'arccos(3)' --seed 7")
            .html();
        check_balanced(&html.replace(STYLE, ""));
        assert!(html.contains("arc-cosine &amp; &lt;NTK&gt;"));
        assert!(html.contains("<p class=\"notice\">A quick run.</p>\n<p class=\"lead\">"));
        assert!(html.contains("<nav>") && html.contains("--kernel &#39;arccos(3)&#39;"));
        for outside in ["http://", "https://", "<script", "@import", "<link"] {
            assert!(!html.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
    }
}
