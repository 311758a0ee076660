    var mine = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += a[begins + i];
    }
    let mean = total(lane, mine) / count;
    mine = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += (a[begins + i] - mean) * (a[begins + i] - mean);
    }
    let least = mean + c.number * sqrt(total(lane, mine) / (count - 1.0));
    for (var i = lane; i < c.dim; i += LANES) {
        out[to + i] = max(a[begins + i] - least, 0.0);
    }
