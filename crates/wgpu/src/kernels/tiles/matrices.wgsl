// Tiles of 32 x 32 numbers as matrices of SIDE x SIDE, each of which a subgroup has together. Sums are of f32.
const SIDE = {{SIDE}}u;
const ACROSS = {{ACROSS}}u; // of a tile
// of a tile, each subgroup has so many; where there are more subgroups than that takes, some do the same
const OWN = {{OWN}}u;
const SUBGROUPS = {{SUBGROUPS}}u;
const PITCH = 40u; // of 32 used: a multiple of 16 bytes, and neighbouring rows lie in other banks
const IS_ROUNDED = {{IS_ROUNDED}};
// what weights are multiplied with, so that small ones are normal numbers
const BOOST = {{BOOST}};

alias Number = {{NUMBER}};

var<workgroup> tile_x: array<Number, 32u * PITCH>;
var<workgroup> tile_w: array<Number, 32u * PITCH>;
var<workgroup> tile_sums: array<f32, 32u * PITCH>;
// of the two halves of each row of activations
var<workgroup> largest: array<f32, 64>;

fn put16(to: u32, numbers: Sixteen, factor: f32, is_x: bool) {
    for (var i = 0u; i < 16u; i++) { // unrolled
        let number = Number(numbers[i / 4u][i % 4u] * factor);
        if (is_x) {
            tile_x[to + i] = number;
        } else {
            tile_w[to + i] = number;
        }
    }
}

fn sixteen_of(begin: u32) -> Sixteen {
    return Sixteen(x[begin], x[begin + 1u], x[begin + 2u], x[begin + 3u]);
}

fn products(thread: u32, weight_row: u32, subgroup: u32) -> array<vec4<f32>, 4> {
    let chunks = own_chunks();
    let half = thread % 2u;
    let begin = starts[thread / 2u] + 4u * half;
    var most = 0.0;
    if (IS_ROUNDED) {
        // the largest number of a row becomes 1
        for (var chunk = 0u; chunk < chunks; chunk++) {
            let s = scaling(sixteen_of(begin + 8u * chunk));
            most = max(most, s.largest);
        }
    }
    largest[thread] = most;
    for (var i = thread; i < 32u * PITCH; i += 64u) {
        tile_sums[i] = 0.0;
    }
    workgroupBarrier();
    let of_row = max(largest[thread / 2u * 2u], largest[thread / 2u * 2u + 1u]);
    let inverse = select(1.0, select(0.0, 1.0 / of_row, of_row > 1e-30), IS_ROUNDED);
    // no control flow depends on what a subgroup has
    var sums: array<{{SUM}}, OWN>;
    for (var i = 0u; i < OWN; i++) {{LOOP}}
        let t = i * SUBGROUPS + subgroup % SUBGROUPS;
        let first = (t / ACROSS) * SIDE * PITCH + (t % ACROSS) * SIDE;
        {{BEGIN}}
    }
    for (var chunk = 0u; chunk < chunks; chunk++) {
        let to = (thread / 2u) * PITCH + 16u * half;
        put16(to, sixteen_of(begin + 8u * chunk), inverse, true);
        put16(to, weights16(weight_row, chunk, half), BOOST, false);
        workgroupBarrier();
        for (var i = 0u; i < OWN; i++) {{LOOP}}
            let t = i * SUBGROUPS + subgroup % SUBGROUPS;
            for (var k = 0u; k < ACROSS; k++) {{LOOP}}
                let at_x = (t / ACROSS) * SIDE * PITCH + k * SIDE;
                let at_w = (t % ACROSS) * SIDE * PITCH + k * SIDE;
                {{MULTIPLY}}
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < OWN; i++) {{LOOP}}
        let t = i * SUBGROUPS + subgroup % SUBGROUPS;
        let to = (t / ACROSS) * SIDE * PITCH + (t % ACROSS) * SIDE;
        {{STORE}}
    }
    workgroupBarrier();
    let column = thread % 8u;
    let line = thread / 8u;
    var own: array<vec4<f32>, 4>;
    for (var i = 0u; i < 4u; i++) { // unrolled
        let n = 4u * line + i;
        let factor = select(1.0, max(largest[2u * n], largest[2u * n + 1u]), IS_ROUNDED) / BOOST;
        for (var j = 0u; j < 4u; j++) { // unrolled
            own[i][j] = tile_sums[n * PITCH + 4u * column + j] * factor;
        }
    }
    return own;
}

