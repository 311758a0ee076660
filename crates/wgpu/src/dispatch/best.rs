//! What finds the likeliest tokens, and tells single logits beside them.

use program::{OutputKind, Rows};

use super::{Bound, Choice, Grid, Maker};
use crate::kernels::{BEST, Shader, TOLD, lists};
use crate::plan::{GpuPlan, Place};

/// Logits of which a workgroup finds the likeliest.
const STRETCH: usize = 2048;

/// Stretches of a row of so many logits.
pub(crate) fn stretches(cols: usize) -> usize {
    cols.div_ceil(STRETCH)
}

/// Where the logits of selected rows lie, and how many a row has; `None` if all rows have some: what is wanted of these
/// the host takes.
pub(crate) fn logits(plan: &GpuPlan) -> Option<(Place, usize)> {
    let (_, place, spec) = plan.output(OutputKind::Logits)?;
    (spec.rows == Rows::Selected).then_some((*place, spec.cols))
}

/// Bytes of what the stretches of all rows found that are read back as they are: to join so few is no work for the host,
/// while another dispatch waits for what is before it.
const FEW_FOUND: usize = 4096;

/// Whether the device joins what the stretches of so many rows found, `n_best` tokens each.
pub(crate) fn joins_found(plan: &GpuPlan, rows: usize, n_best: usize) -> bool {
    logits(plan).is_some_and(|(_, cols)| {
        let n_lists = stretches(cols);
        n_lists > 1 && 8 * rows * n_best * n_lists > FEW_FOUND
    })
}

impl Maker<'_> {
    /// The likeliest tokens, and logits beside them, where steps want no more than these.
    pub(super) fn best(&mut self) {
        let Some((place, cols)) = logits(self.plan) else { return };
        let stretches = stretches(cols);
        let consts = |lists: usize| {
            let sizes = [STRETCH, stretches, lists].map(|n| n as u32);
            [&[cols as u32][..], &self.at(place), &sizes].concat()
        };
        let consts = [stretches, 1].map(consts);
        let bound =
            [vec![Bound::Buffer(place.buffer), Bound::Found], vec![Bound::Found, Bound::Best]];
        let kinds =
            [(lists::STRETCHES, Grid::Best { lists: stretches }), (lists::FOUND, Grid::Joined)];
        for (((body, grid), bound), consts) in kinds.into_iter().zip(bound).zip(consts) {
            let choice = Choice::One(Shader::best(body));
            self.push((&BEST, choice, grid), place.buffer, bound, consts);
        }
        let told = (&TOLD, Choice::One(Shader::told()), Grid::Told);
        let bound = vec![Bound::Buffer(place.buffer), Bound::Best];
        self.push(told, place.buffer, bound, self.at(place).to_vec());
    }
}
