    // several numbers are on their way at once: what is waited for is memory
    var mine = 0.0;
    for (var first = lane; first < c.dim; first += 4u * LANES) {
        for (var k = 0u; k < 4u; k++) { // unrolled
            let x = a[begins + min(first + k * LANES, c.dim - 1u)];
            mine += select(0.0, x * x, first + k * LANES < c.dim);
        }
    }
    let scale = 1.0 / sqrt(total(lane, mine) / count + c.number);
    for (var first = lane; first < c.dim; first += 4u * LANES) {
        var y: array<f32, 4>;
        for (var k = 0u; k < 4u; k++) { // unrolled
            let i = min(first + k * LANES, c.dim - 1u);
            y[k] = a[begins + i] * scale;
            if (c.weight != NONE) {
                y[k] *= vectors[c.weight + id.x * c.weight_step + i];
            }
            if (c.bias != NONE) {
                y[k] += vectors[c.bias + id.x * c.bias_step + i];
            }
        }
        for (var k = 0u; k < 4u; k++) { // unrolled
            if (first + k * LANES < c.dim) {
                out[to + first + k * LANES] = y[k];
            }
        }
    }
