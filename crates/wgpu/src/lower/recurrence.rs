//! Works of what recurs. What a scan alone reads is brought together in one buffer as it is written, for kernels bind few.

use program::{CausalConv, Error, Node, Op, Result, Rows, Scan, ScanKind, ValueId, alibi_slope};

use super::Lowering;
use crate::kernels::recurrence::SCAN_BUFFERS;
use crate::kernels::{Finish, element};
use crate::plan::{ConvWork, GpuWork, Place, ScanWork, VectorSpec};

/// Rows of a head's matrix at most: a few lanes keep a column in registers.
const MOST_KEYS: usize = 1024;

/// Whether kernels compute such a recurrence.
///
/// # Errors
/// [`Error::Unsupported`].
pub(crate) fn check(scan: &Scan) -> Result<()> {
    let key_dim = scan.dims.key_dim;
    if key_dim > MOST_KEYS {
        let name = scan.kind.name();
        return Err(Error::Unsupported(format!(
            "op `{name}` with keys of {key_dim} numbers on a GPU: at most {MOST_KEYS}"
        )));
    }
    Ok(())
}

impl Lowering<'_> {
    pub(super) fn conv(&mut self, node: &Node, conv: &CausalConv) {
        let CausalConv { cache, taps, bias, width, step, act } = *conv;
        let [taps, bias] = [taps, bias].map(|id| id.map(|id| self.weight_vector(id)));
        let x = self.place(node.inputs[0]);
        let channels = self.program.value(node.output).shape.cols();
        let out = self.output(node.output);
        self.plan.works.push(GpuWork::Conv(ConvWork {
            cache: cache.0 as usize,
            channels,
            taps,
            bias,
            width,
            step,
            finish: act.map_or(Finish::Plain, Finish::Act),
            x,
            out,
        }));
    }

    pub(super) fn scan(&mut self, node: &Node, scan: &Scan) -> Result<()> {
        check(scan)?;
        let n_heads = scan.dims.n_heads;
        let cols = |id: &ValueId| self.program.value(*id).shape.cols();
        let by_row = node.inputs.get(3).is_some_and(|id| cols(id) != n_heads);
        let inputs = node.inputs.iter().map(|id| (self.place(*id), cols(id))).collect();
        let mut weight = |id| Some(self.weight_vector(id));
        let (number, vectors) = match scan.kind {
            ScanKind::Delta { eps } => (eps, [None; 2]),
            ScanKind::Linear { scale } => (scale, [None; 2]),
            ScanKind::Lightning { factor } => {
                let stays =
                    |head| (-alibi_slope(head, n_heads, 8.0) * f64::from(factor)).exp() as f32;
                let stays = VectorSpec::Numbers((0..n_heads).map(stays).collect());
                (1.0, [Some(self.vector(stays)), None])
            }
            ScanKind::Ssd { a, d } | ScanKind::Selective { a, d } => (1.0, [weight(a), weight(d)]),
            ScanKind::Wkv6 { first } => (1.0, [weight(first), None]),
            ScanKind::Wkv7 => (1.0, [None; 2]),
        };
        let mut work = ScanWork {
            cache: scan.cache.0 as usize,
            rule: scan.kind.rule(),
            dims: scan.dims,
            by_row,
            number,
            vectors,
            inputs,
            out: self.output(node.output),
        };
        if work.buffers().len() > SCAN_BUFFERS {
            self.bring_together(&mut work);
        }
        self.plan.works.push(GpuWork::Scan(Box::new(work)));
        Ok(())
    }

    /// Copy what a row gives into one buffer.
    fn bring_together(&mut self, work: &mut ScanWork) {
        let cols = work.inputs[1..].iter().map(|(_, cols)| cols).sum();
        let to = self.new_buffer(Rows::Tokens, cols);
        let mut offset = 0;
        for (place, cols) in &mut work.inputs[1..] {
            let copy = Place { offset, ..to };
            self.push_elements(element::COPY, *place, None, copy, *cols);
            *place = copy;
            offset += *cols;
        }
    }

    /// Where a value goes that a scan alone reads: behind others that it reads.
    pub(super) fn place_for_scan(&mut self, id: ValueId) -> Option<Place> {
        let scan = self.uses.only_reader(id)?;
        let nodes = &self.program.nodes;
        // others write whole chunks, or what lies behind a row
        let writes_no_more = matches!(
            nodes[self.uses.writer(id)?].op,
            Op::Linear { .. }
                | Op::Norm(_)
                | Op::Act(_)
                | Op::GatedAct(_)
                | Op::Add
                | Op::Scale(_)
                | Op::Multiply { .. }
                | Op::CausalConv(_)
        );
        if !writes_no_more || !matches!(nodes[scan].op, Op::Scan(_)) {
            return None;
        }
        let cols = self.program.value(id).shape.cols();
        let of_scan = self.for_scans.get(&scan).copied();
        let buffer = of_scan.unwrap_or_else(|| self.new_buffer(Rows::Tokens, 0).buffer);
        self.for_scans.insert(scan, buffer);
        let spec = &mut self.plan.buffers[buffer.0];
        let offset = spec.cols;
        spec.cols += cols;
        Some(Place { buffer, offset })
    }
}
