//! [`Grams`]: rows of a table by hashes of the last few tokens.

/// From the ids of a few tokens to a row for each head: [`Op::Grams`](crate::Op::Grams).
///
/// The ids of `n` tokens have the hash `id_0 * multipliers[0] ^ .. ^ id_(n-1) * multipliers[n-1]`, in 64 bits, where `id_i` is
/// that of the token `i` before the row's own. Heads of pairs come first, then those of three, up to as many tokens as there
/// are multipliers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grams {
    /// Two or more.
    pub multipliers: Vec<u64>,
    /// As many for each number of tokens.
    pub heads: Vec<GramHead>,
    /// The id that ends a text: it stands for every token before one that has it, and for those that there are none of.
    pub end: u32,
}

/// The rows of a head: a hash comes to the one that is left of it by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GramHead {
    /// First row.
    pub start: usize,
    /// Their number, at least 1.
    pub n_rows: usize,
}

impl Grams {
    /// The row of each head. `ids` are counted from 1, the row's own first, 0 where there is none.
    pub fn rows(&self, ids: &[f32]) -> impl Iterator<Item = usize> {
        let end = u64::from(self.end);
        let mut is_cut = false;
        let mut hash = 0;
        let mut hashes = Vec::with_capacity(self.multipliers.len());
        for (before, (id, multiplier)) in ids.iter().zip(&self.multipliers).enumerate() {
            let id = (*id as u64).checked_sub(1);
            is_cut |= before > 0 && id.is_none_or(|id| id == end);
            let id = if is_cut { end } else { id.unwrap_or(end) };
            hash ^= id.wrapping_mul(*multiplier);
            hashes.push(hash);
        }
        let each = self.heads.len() / self.multipliers.len().saturating_sub(1).max(1);
        let row = move |(i, head): (usize, &GramHead)| {
            // a number of tokens for each of which there are no heads has none
            let hash = hashes.get(i / each.max(1) + 1).copied().unwrap_or(0);
            head.start + (hash % head.n_rows as u64) as usize
        };
        self.heads.iter().enumerate().map(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_hand() {
        let head = |start, n_rows| GramHead { start, n_rows };
        let grams = Grams {
            multipliers: vec![1, 3, u64::MAX],
            heads: vec![head(0, 10), head(10, 7), head(100, 10), head(200, 1)],
            end: 9,
        };
        let rows = |ids: &[f32]| grams.rows(ids).collect::<Vec<_>>();
        // ids 4, 5, 6: 4 ^ 15 is 11, and 11 ^ -6 in 64 bits
        let three = 11 ^ 6u64.wrapping_neg();
        assert_eq!(rows(&[5.0, 6.0, 7.0]), [1, 14, 100 + (three % 10) as usize, 200]);
        // the end of a text hides what is before it, and so does a start; not what comes with it
        let two = 4 ^ 27u64;
        let cut = [(two % 10) as usize, 10 + (two % 7) as usize];
        let cut = [cut[0], cut[1], 100 + ((two ^ 9u64.wrapping_neg()) % 10) as usize, 200];
        assert_eq!(rows(&[5.0, 10.0, 7.0]), cut);
        assert_eq!(rows(&[5.0, 0.0, 0.0]), cut);
        assert_eq!(rows(&[5.0, 0.0, 7.0]), cut);
        // ids 9, 5, 6: 9 ^ 15 is 6
        assert_eq!(rows(&[10.0, 6.0, 7.0])[0], 6);
    }
}
