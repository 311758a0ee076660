    var mine = -3e38;
    for (var i = lane; i < c.dim; i += LANES) {
        mine = max(mine, a[begins + i]);
    }
    let most = greatest(lane, mine);
    mine = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += exp(a[begins + i] - most);
    }
    let all = total(lane, mine);
    for (var i = lane; i < c.dim; i += LANES) {
        out[to + i] = exp(a[begins + i] - most) / all;
    }
