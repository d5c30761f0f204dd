//! How results are shown: tables, sentences, reports.

pub mod certificate;
pub mod codes;
pub mod columns;
pub mod gp_page;
pub mod graph;
pub mod hits_page;
pub mod page;
pub mod posterior;
pub mod process_score;
pub mod regress_page;
pub mod score;
pub mod table_with_notes;
pub mod uncertainty;
pub mod uncertainty_page;
pub mod units;
