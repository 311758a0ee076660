//! [`Among`]: what the likeliest tokens of a row are looked for among, and whose logits are told beside them.
//!
//! Whoever changes few logits before it chooses (a bias, penalties) asks for as many candidates more, and for the logits of
//! these tokens: what it would have chosen of the whole row is among them then, and each logit is changed where it always was.

use crate::{
    Candidate, Error, LogitRows, OutputKind, Program, Result, RowsOut, Sequence, Step, StepOut,
    Wanted, k_likeliest,
};

/// What is looked at for one row that yields [`Wanted::Candidates`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Among<'a> {
    /// The tokens that may be candidates: token `i` is bit `i % 32` of word `i / 32`, and those beyond may not. `None`: all.
    pub allowed: Option<&'a [u32]>,
    /// Tokens whose logits are told whatever they are.
    pub told: &'a [u32],
}

impl Among<'_> {
    /// Whether a token may be a candidate.
    pub fn allows(&self, token: u32) -> bool {
        let word = |words: &[u32]| words.get(token as usize / 32).copied().unwrap_or(0);
        self.allowed.is_none_or(|words| word(words) >> (token % 32) & 1 == 1)
    }

    /// The best `k` of one row of finite logits, and what is told of it.
    pub fn of(&self, logits: &[f32], k: usize) -> AmongRow {
        let mut candidates = Vec::new();
        if self.allowed.is_none() {
            k_likeliest(logits, &[], k, &mut candidates);
        } else {
            let all = logits.iter().zip(0u32..).filter(|(_, token)| self.allows(*token));
            candidates.extend(all.map(|(&logit, token)| Candidate { token, logit }));
            if k > 0 && candidates.len() > k {
                candidates.select_nth_unstable_by(k - 1, Candidate::likelier);
            }
            candidates.truncate(k);
        }
        candidates.sort_unstable_by(Candidate::likelier);
        let told = self.told.iter().map(|token| logits[*token as usize]).collect();
        AmongRow { candidates, told }
    }
}

/// What one row yields among some tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AmongRow {
    /// The likeliest first, of equals the lower id: as many as were asked for, or all that are allowed.
    pub candidates: Vec<Candidate>,
    /// Logits of the tokens that were to be told, in their order.
    pub told: Vec<f32>,
}

/// Refuse what does not fit the sequences of a step: `among[i]` has nothing, or one for each row that sequence `i` yields
/// candidates of.
///
/// # Errors
/// [`Error::Operand`] for another number of them, or for sequences that want something else; [`Error::Token`].
pub fn check_among(program: &Program, step: &Step<'_>, among: &[&[Among<'_>]]) -> Result<()> {
    let logits = program.output(OutputKind::Logits);
    let vocab_size = logits.map_or(0, |id| program.value(id).shape.cols());
    let refuse = |expected: String, found: String| {
        Err(Error::Operand { op: "candidates among".into(), expected, found })
    };
    let n = step.sequences.len();
    if among.len() != n {
        return refuse(format!("those of {n} sequences"), among.len().to_string());
    }
    for (Sequence { outputs, tokens, .. }, rows) in step.sequences.iter().zip(among) {
        if rows.is_empty() {
            continue;
        }
        let wanted = outputs.count(tokens.len());
        if !matches!(outputs.what, Wanted::Candidates { .. }) || rows.len() != wanted {
            let found = format!("{} of {:?}", rows.len(), outputs.what);
            return refuse(format!("one for each of {wanted} rows of candidates"), found);
        }
        let mut told = rows.iter().flat_map(|row| row.told);
        if let Some(&token) = told.find(|token| **token as usize >= vocab_size) {
            return Err(Error::Token { token, vocab_size });
        }
    }
    Ok(())
}

/// What a sequence of whole rows yields among some tokens, one for each row.
pub fn rows_among(rows: &LogitRows, k: usize, among: &[Among<'_>]) -> RowsOut {
    RowsOut::Among(rows.rows().zip(among).map(|(row, among)| among.of(row, k)).collect())
}

/// The meaning of [`Model::step_among`](crate::Model::step_among), by steps of whole rows.
///
/// # Errors
/// Those of [`check_among`] and of the step.
pub(crate) fn by_whole_rows(
    program: &Program,
    step: &Step<'_>,
    among: &[&[Among<'_>]],
    run: &mut dyn FnMut(&Step<'_>) -> Result<StepOut>,
) -> Result<StepOut> {
    check_among(program, step, among)?;
    let pairs = || step.sequences.iter().zip(among);
    let mut all = step.sequences.to_vec();
    for (sequence, _) in all.iter_mut().zip(among).filter(|(_, rows)| !rows.is_empty()) {
        sequence.outputs.what = Wanted::Logits;
    }
    let out = run(&Step { sequences: &all })?;
    let narrow = |((sequence, rows), out): ((&Sequence<'_>, &&[Among<'_>]), Result<RowsOut>)| match (
        sequence.outputs.what,
        out?,
    ) {
        (Wanted::Candidates { k }, RowsOut::Logits(logits)) if !rows.is_empty() => {
            Ok(rows_among(&logits, k, rows))
        }
        (_, out) => Ok(out),
    };
    Ok(StepOut { sequences: pairs().zip(out.sequences).map(narrow).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_among_some_tokens() {
        let logits = [1.0, 3.0, -0.0, 3.0, 0.0];
        let tokens = |row: &AmongRow| row.candidates.iter().map(|c| c.token).collect::<Vec<_>>();
        let all = Among { allowed: None, told: &[4, 0] }.of(&logits, 3);
        assert_eq!((tokens(&all), all.told), (vec![1, 3, 0], vec![0.0, 1.0]));
        let some = Among { allowed: Some(&[0b10100]), told: &[] }.of(&logits, 3);
        assert_eq!(tokens(&some), [2, 4]);
        assert_eq!(tokens(&Among { allowed: Some(&[]), told: &[] }.of(&logits, 3)), []);
    }
}
