    var mine = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += a[begins + i] * a[begins + i];
    }
    let scale = 1.0 / sqrt(total(lane, mine) / count + c.number);
    let mean = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        var y = (a[begins + i] - mean) * scale;
        if (c.weight != NONE) {
            y *= vectors[c.weight + id.x * c.weight_step + i];
        }
        if (c.bias != NONE) {
            y += vectors[c.bias + id.x * c.bias_step + i];
        }
        out[to + i] = y;
    }
