//! `rooflight-lab article`: the tables of the roofline article made again, as markdown, CSV and pictures.

mod pictures;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use planner::article;
use planner::formula::Units;

use console::output::{OutputArgs, OutputFile, shown};
use console::ui;

/// Make the tables of the roofline article again
///
/// Theoretical limits of Qwen1.5 0.5B to 110B on an RTX 4090, sections 3.1 to 5.1.5: parameters, cache, memory, inflections of the prefill, time of steps; and what the article says beside its tables: the head's share, FLOP per byte of models and machines, queries kept or computed again, memory of the weights. Cells that the article prints otherwise are marked, with what it prints and why that is wrong.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight-lab article\n  rooflight-lab article --decimal-units\n  rooflight-lab article --out folder"
)]
pub(super) struct Article {
    /// Write article.md, a CSV file for each table and the pictures into this folder, instead of printing
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Count in powers of ten, as makers do, instead of the article's powers of two
    #[arg(long)]
    decimal_units: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Article {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let units = if self.decimal_units { Units::Decimal } else { Units::Article };
        let mut tables = article::tables(units);
        tables.extend(article::beside(units));
        let Some(folder) = self.out else {
            return Ok(write!(out, "{}", text::markdown(&tables, units, &[]))?);
        };
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
        let pictures = pictures::all(units);
        let named: Vec<(&str, &str)> = pictures.iter().map(|p| (p.name, p.title)).collect();
        let mut files = Vec::new();
        let mut file = |name: &str, content: &str| -> anyhow::Result<()> {
            files.push(written(self.output, &folder.join(name), content)?);
            Ok(())
        };
        file("article.md", &text::markdown(&tables, units, &named))?;
        for table in &tables {
            file(&format!("{}.csv", table.section), &text::csv(table))?;
        }
        for picture in &pictures {
            file(&format!("{}.svg", picture.name), &picture.figure.svg())?;
        }
        // all of them are whole, none is in its place yet
        let n = files.len();
        files.into_iter().try_for_each(OutputFile::finish)?;
        ui::note(format_args!("{n} files in {}", shown(&folder)));
        Ok(())
    }
}

fn written(output: OutputArgs, path: &Path, content: &str) -> anyhow::Result<OutputFile> {
    let mut file = output.create(path)?;
    file.write_all(content.as_bytes()).with_context(|| format!("writing {}", shown(path)))?;
    Ok(file)
}
