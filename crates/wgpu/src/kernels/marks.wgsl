// Before attention by choice: a bit for each unit of the past, set if it was chosen. A workgroup has one choice of one row.
struct Consts {
    unit: u32,
    room: u32, // units of the list
    n_choices: u32,
    a_offset: u32,
    a_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> a: array<f32>;
@group(0) @binding(3) var<storage, read_write> marks: array<u32>;

const LANES = 64u;

// Where units from this one on begin in an ascending list, behind which there are none.
fn begins(list: u32, least: u32) -> u32 {
    var low = 0u;
    var high = c.room;
    while (low < high) {
        let middle = (low + high) / 2u;
        let its = a[list + middle];
        if (its < 0.0 || u32(its) >= least) {
            high = middle;
        } else {
            low = middle + 1u;
        }
    }
    return low;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let list = id.y * c.a_stride + c.a_offset + id.x * c.room;
    let words = position_of(id.y) / c.unit / 32u + 1u;
    let to = (id.y * c.n_choices + id.x) * 2u * step[N_BLOCKS];
    for (var word = lane; word < words; word += LANES) {
        var bits = 0u;
        for (var i = begins(list, 32u * word); i < c.room; i++) {
            let its = a[list + i];
            if (its < 0.0 || u32(its) >= 32u * word + 32u) {
                break;
            }
            bits |= 1u << (u32(its) % 32u);
        }
        marks[to + word] = bits;
    }
}
