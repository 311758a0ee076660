    var mine = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += a[begins + i];
    }
    let mean = total(lane, mine) / count;
    mine = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += (a[begins + i] - mean) * (a[begins + i] - mean);
    }
    let scale = 1.0 / sqrt(total(lane, mine) / count + c.number);
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
