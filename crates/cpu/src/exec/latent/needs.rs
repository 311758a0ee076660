//! How much memory latent attention needs in a step.

use super::super::q8_stride;
use super::StepRows;
use super::absorbed::{absorbed_floats, elided_floats, gathered_floats};
use super::compressed::compressed_floats;
use super::cut::{self, batches};
use super::heads::{self, tile_floats};
use super::memory::LatentNeeds;
use crate::cache::LatentCache;
use crate::geometry::MAX_PARTIAL_FLOATS;
use crate::mla::{MlaDims, MlaForm};
use crate::weights::HeadMatrix;

impl LatentNeeds {
    /// For the rows of a step over one cache, with these matrices; so many positions are `chosen` for each, if not all.
    pub(crate) fn of<'m>(
        dims: &MlaDims,
        cache: Option<&LatentCache>,
        rows: StepRows<'_>,
        chosen: Option<usize>,
        matrices: impl Iterator<Item = &'m HeadMatrix>,
        workers: usize,
    ) -> LatentNeeds {
        let mut needs = LatentNeeds::default();
        let n = rows.sequences.iter().map(|s| s.n).sum::<usize>().min(heads::MAX_ROWS);
        let mut floats = tile_floats(n) + dims.rank + 2 * dims.key_dim();
        if let Some(cache) = cache {
            let mut chooses = false;
            for batch in batches(dims, rows, chosen, workers, MAX_PARTIAL_FLOATS) {
                chooses |= batch.runs.iter().any(|run| run.chosen.is_some());
                needs.queries = needs.queries.max(batch.query_floats);
                needs.gathered = needs.gathered.max(batch.n_rows * dims.rank);
                needs.partials = needs.partials.max(batch.partial_floats(dims));
            }
            let any = |form| rows.forms.contains(&form);
            if any(MlaForm::Elided) || chooses {
                let gathered = if chooses { gathered_floats(&cache.shape) } else { 0 };
                floats = floats.max(elided_floats(&cache.shape, cut::MAX_ROWS) + gathered);
            }
            if any(MlaForm::Absorbed) {
                floats = floats.max(absorbed_floats(&cache.shape));
            }
            if any(MlaForm::Compressed) {
                let longest = rows.sequences.iter().map(|s| s.n).max().unwrap_or(0);
                // contexts may be far longer than steps: a whole block is expanded at a time
                floats = floats.max(compressed_floats(dims, longest, workers));
            }
        }
        needs.worker[0] = floats;
        let n = if rows.forms.contains(&MlaForm::Compressed) { heads::MAX_ROWS } else { n };
        for matrix in matrices {
            let cols = matrix.cols;
            let words = matrix.kernel.tiling(n, cols).map_or(0, |tiling| {
                // fewer rows may fill their tiles less well, by less than a row each
                (n + tiling.n_tiles) * (tiling.tile_words / tiling.tile_rows)
            });
            let input =
                [0, n * q8_stride(cols), n * cols.div_ceil(32), n * cols.div_ceil(16), words];
            for (need, input) in needs.worker.iter_mut().zip(input) {
                // two inputs at a time
                *need = (*need).max(2 * input);
            }
        }
        needs
    }
}
