// Many rows times pieces of a matrix, in tiles of 32 rows of a piece and 32 pairs of a row and a slot that chose it, which
// `sorted.wgsl` put together. A lane has 4 x 4 sums, as in `matmat.wgsl`.
const WORDS = 66u; // of a tile in the list

// where each row of activations begins in `x`
var<workgroup> starts: array<u32, 32>;
// How many a workgroup goes through: what is handed to a function counts as another number for each lane, and matrices of
// subgroups want it proved that it is one.
var<workgroup> chunks_here: u32;

fn own_chunks() -> u32 {
    return chunks_here;
}

{{TILES}}
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    {{LANE}}
) {
    let tile = 1u + id.y * WORDS;
    if (id.y >= routes[0]) {
        return;
    }
    let begins = routes[tile] * c.each + c.skipped;
    let n_pairs = routes[tile + 1u];
    let first_row = id.x * 32u;
    let end_row = c.first + c.rows;
    let is_here = begins + first_row + 32u > c.first && begins + first_row < end_row;
    let chunks = select(0u, c.chunks, is_here);
    let column = thread % 8u;
    let line = thread / 8u;
    let weight_row = clamp(begins + first_row + thread / 2u, c.first, end_row - 1u) - c.first;
    if (thread < 32u) {
        // what is beyond the last pair is not put down
        let pair = routes[tile + 2u + 2u * min(thread, n_pairs - 1u)];
        starts[thread] = (pair / c.slots * c.x_stride + c.x_offset + pair % c.slots * c.x_pitch) / 4u;
    }
    if (thread == 0u) {
        chunks_here = chunks;
    }
    workgroupBarrier();
    var sums = products(thread, weight_row, {{WHO}});
    let by = select(1u, 2u, c.gate_kind != 0u);
    for (var i = 0u; i < 4u; i++) {
        let entry = tile + 2u + 2u * (4u * line + i);
        if (4u * line + i >= n_pairs) {
            continue;
        }
        let n = routes[entry] / c.slots;
        let to = n * c.out_stride + c.out_offset + routes[entry] % c.slots * c.out_pitch;
        for (var j = 0u; j < 4u; j += by) {
            let local = first_row + 4u * column + j;
            let row = begins + local;
            if (local >= c.taken) {
                if (local < by * c.out_pitch) {
                    out[to + local / by] = 0.0;
                }
            } else if (row >= c.first && row < end_row) {
                let y = weighed(sums[i][j], row, entry + 1u);
                var beside = 0.0;
                if (by == 2u) {
                    beside = weighed(sums[i][min(j + 1u, 3u)], row + 1u, entry + 1u);
                }
                out[to + local / by] = finished(y, beside);
            }
        }
    }
}
