//! What is printed of texts: lines, or JSON in the shapes of OpenAI's embeddings and Jina's ranks.

use std::io::Write;

use program::HiddenRows;
use serde::Serialize;

use crate::printable::Printable;

/// What vectors are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vectors {
    /// One for each text.
    OfTexts,
    /// One for each token of each text.
    OfTokens,
}

/// Texts that a model has read.
pub(super) struct Said<'a> {
    pub(super) model: &'a str,
    /// Of all texts.
    pub(super) n_tokens: usize,
    pub(super) texts: &'a [String],
}

#[derive(Serialize)]
struct List<'a, T> {
    object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Vec<T>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<T>>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

#[derive(Serialize)]
struct Embedding<'a> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers<'a> {
    Vector(&'a [f32]),
    Vectors(Vec<&'a [f32]>),
}

#[derive(Serialize)]
struct Ranked<'a> {
    index: usize,
    relevance_score: f32,
    document: Document<'a>,
}

#[derive(Serialize)]
struct Document<'a> {
    text: &'a str,
}

impl Said<'_> {
    /// Vectors in the order of the texts.
    pub(super) fn vectors(
        &self,
        rows: &[HiddenRows],
        of: Vectors,
        json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        if json {
            fn embedding(of: Vectors, index: usize, rows: &HiddenRows) -> Embedding<'_> {
                Embedding {
                    object: "embedding",
                    index,
                    embedding: match of {
                        Vectors::OfTexts => Numbers::Vector(&rows.hidden),
                        Vectors::OfTokens => Numbers::Vectors(rows.rows().collect()),
                    },
                }
            }
            let all = rows.iter().enumerate().map(|(i, rows)| embedding(of, i, rows)).collect();
            return self.write(Some(all), None, out);
        }
        for vector in rows.iter().flat_map(HiddenRows::rows) {
            let mut numbers = vector.iter();
            if let Some(first) = numbers.next() {
                write!(out, "{first}")?;
            }
            numbers.try_for_each(|number| write!(out, " {number}"))?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Texts by their scores, the best first, of equals the earlier one.
    pub(super) fn ranks(
        &self,
        scores: Vec<f32>,
        json: bool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let mut order: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        if json {
            let ranked = |(index, relevance_score): (usize, f32)| Ranked {
                index,
                relevance_score,
                document: Document { text: &self.texts[index] },
            };
            return self.write(None, Some(order.into_iter().map(ranked).collect()), out);
        }
        for (index, score) in order {
            // a text of several lines stands in one
            let text = Printable::default().push(&self.texts[index]).replace(['\n', '\t'], " ");
            writeln!(out, "{score}\t{index}\t{text}")?;
        }
        Ok(())
    }

    fn write<T: Serialize>(
        &self,
        data: Option<Vec<T>>,
        results: Option<Vec<T>>,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let usage = Usage { prompt_tokens: self.n_tokens, total_tokens: self.n_tokens };
        let list = List { object: "list", data, results, model: self.model, usage };
        serde_json::to_writer(&mut *out, &list)?;
        writeln!(out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(print: impl Fn(&Said<'_>, &mut dyn Write) -> anyhow::Result<()>) -> String {
        let texts = ["a", "b\tc", "d"].map(str::to_owned);
        let mut out = Vec::new();
        print(&Said { model: "m", n_tokens: 7, texts: &texts }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn vectors_stand_in_lines_or_as_openai_has_them() {
        let rows = [HiddenRows { hidden: vec![0.1, -2.0, 3.0, 0.25], hidden_size: 2 }];
        let lines = said(|said, out| said.vectors(&rows, Vectors::OfTokens, false, out));
        assert_eq!(lines, "0.1 -2\n3 0.25\n");
        let one = [HiddenRows { hidden: vec![0.1, -2.0], hidden_size: 2 }];
        let json = said(|said, out| said.vectors(&one, Vectors::OfTexts, true, out));
        let want = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2.0]}],"model":"m","usage":{"prompt_tokens":7,"total_tokens":7}}"#;
        assert_eq!(json.trim_end(), want);
        let json = said(|said, out| said.vectors(&rows, Vectors::OfTokens, true, out));
        assert!(json.contains(r#""embedding":[[0.1,-2.0],[3.0,0.25]]"#), "{json}");
    }

    #[test]
    fn the_best_text_comes_first() {
        let ranks = |json| said(|said, out| said.ranks(vec![0.5, 0.75, 0.5], json, out));
        let lines = ranks(false);
        let fields: Vec<Vec<&str>> = lines.lines().map(|l| l.splitn(3, '\t').collect()).collect();
        assert_eq!(
            fields.iter().map(|f| (f[0], f[1])).collect::<Vec<_>>(),
            [("0.75", "1"), ("0.5", "0"), ("0.5", "2")]
        );
        let json = ranks(true);
        let first = r#""results":[{"index":1,"relevance_score":0.75,"document":{"text":"b\tc"}}"#;
        assert!(json.contains(first), "{json}");
    }
}
