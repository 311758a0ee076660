// Sums over each row and those before it, channel by channel. A lane has one channel of one row; those of a sequence's last row
// also leave what later steps start from.
struct Consts {
    channels: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
    cache: u32,
    taps: u32, // where they begin in `vectors`: `[channels, width]`; NONE: the row before, as it is
    bias: u32, // or NONE
    width: u32, // rows of a sum
    spacing: u32, // from one of them to the next
    act_kind: u32,
    gate_kind: u32, // none
    act_a: f32,
    act_b: f32,
    act_c: f32,
    act_d: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> states: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

// A channel of the row so many before a position; zeros are before the first one.
fn number(s: States, channel: u32, position: u32, before: u32) -> f32 {
    if (before > position) {
        return 0.0;
    }
    let at = position - before;
    if (at >= s.start) {
        return x[(s.first_row + at - s.start) * c.x_stride + c.x_offset + channel];
    }
    if (at >= s.begins) {
        return states[s.ring + ring_row(at, c.channels) + channel];
    }
    // the rows that sums reach at most before a state are what it is
    let reach = c.spacing * (c.width - 1u);
    return states[s.base + (at + reach - s.begins) * c.channels + channel];
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let channel = id.x;
    if (channel >= c.channels) {
        return;
    }
    let s = states_of(sequence_of(id.y), c.cache);
    let position = position_of(id.y);
    var y = 0.0;
    if (c.taps == NONE) {
        y = number(s, channel, position, 1u);
    } else {
        if (c.bias != NONE) {
            y = vectors[c.bias + channel];
        }
        for (var i = 0u; i < c.width; i++) {
            let before = (c.width - 1u - i) * c.spacing;
            y += vectors[c.taps + channel * c.width + i] * number(s, channel, position, before);
        }
    }
    out[id.y * c.out_stride + c.out_offset + channel] = finished(y, 1.0);
    if (position >= s.stored_from) {
        let to = s.stored + ring_row(position, c.channels) + channel;
        states[to] = number(s, channel, position, 0u);
    }
    if (position + 1u != s.end) {
        return;
    }
    // rows from before the step that go into another ring
    for (var p = s.stored_from; p < s.start; p++) {
        states[s.stored + ring_row(p, c.channels) + channel] = number(s, channel, p, 0u);
    }
    if (s.fold != NONE) {
        let reach = c.spacing * (c.width - 1u);
        for (var i = 0u; i < reach; i++) {
            let kept = number(s, channel, s.folds + i, reach);
            states[s.fold + i * c.channels + channel] = kept;
        }
    }
}
