//! Several reports as one page: a book with contents.

use super::{Report, STYLE, element};
use crate::svg::escape;

/// A page of chapters, each a report with the command that makes it.
///
/// ```
/// use mercer_figure::report::{Book, Report};
/// let chapter = Report::new("Spectra").lead("They fall.").section("Digits").figure("<svg></svg>", "Eigenvalues.").command("mercer fit digits");
/// let html = Book::new("Experiments").chapter(chapter).html();
/// assert!(html.contains("<a href=\"#chapter-1\">Spectra</a>") && html.contains("<code>mercer fit digits</code>"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Book {
    title: String,
    notice: String,
    chapters: Vec<Report>,
}

impl Book {
    /// An empty book.
    pub fn new(title: impl Into<String>) -> Book {
        Book { title: title.into(), ..Book::default() }
    }

    /// What a reader must know before any result, such as that the runs were small ones.
    pub fn notice(mut self, text: &str) -> Book {
        self.notice = escape(text);
        self
    }

    /// Adds a chapter.
    pub fn chapter(mut self, report: Report) -> Book {
        self.chapters.push(report);
        self
    }

    /// The page.
    pub fn html(&self) -> String {
        let (title, version) = (escape(&self.title), env!("CARGO_PKG_VERSION"));
        let line = |(i, report): (usize, &Report)| {
            let lead = element("span", &report.lead);
            format!("<li><a href=\"#chapter-{}\">{}</a> {lead}</li>\n", i + 1, escape(&report.title))
        };
        let contents: String = self.chapters.iter().enumerate().map(line).collect();
        let chapters: String = self.chapters.iter().enumerate().map(|(i, report)| chapter(i + 1, report)).collect();
        let notice =
            if self.notice.is_empty() { String::new() } else { format!("<p class=\"notice\">{}</p>\n", self.notice) };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n{notice}<ol class=\"contents\">\n{contents}</ol>\n{chapters}</main>\n\
             <footer>\n<p>Written by mercer {version}.</p>\n</footer>\n</body>\n</html>\n"
        )
    }
}

/// A report as the chapter of this number: sections have names of their own, and each figure its command.
fn chapter(number: usize, report: &Report) -> String {
    let command = element("code", &report.command);
    let body = report.body.replace("id=\"section-", &format!("id=\"chapter-{number}-section-"));
    let body = body.replace("</figcaption>", &format!(" {command}</figcaption>"));
    let notice =
        if report.notice.is_empty() { String::new() } else { format!("<p class=\"notice\">{}</p>\n", report.notice) };
    let lead = if report.lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>\n", report.lead) };
    format!(
        "<h1 class=\"chapter\" id=\"chapter-{number}\">{number}. {}</h1>\n{notice}{lead}<pre>{}</pre>\n{body}",
        escape(&report.title),
        report.command
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_balanced;

    #[test]
    fn chapters_have_contents_commands_and_names_of_their_own() {
        let report = |title: &str| {
            Report::new(title)
                .lead("It < holds.")
                .section("One")
                .text("A.")
                .figure("<svg></svg>", "B.")
                .command("mercer a")
        };
        let html = Book::new("All").notice("Quick.").chapter(report("First")).chapter(report("Second & last")).html();
        check_balanced(&html.replace(STYLE, ""));
        for part in [
            "#chapter-2\">Second &amp; last",
            "id=\"chapter-2-section-1\"",
            "B. <code>mercer a</code></figcaption>",
            "Quick.",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("id=\"section-1\""));
    }
}
