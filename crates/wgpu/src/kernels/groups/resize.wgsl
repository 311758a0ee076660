    var mine = 0.0;
    var theirs = 0.0;
    for (var i = lane; i < c.dim; i += LANES) {
        mine += a[begins + i] * a[begins + i];
        theirs += b[beside + i] * b[beside + i];
    }
    let was = total(lane, mine);
    let wanted = total(lane, theirs);
    var scale = 0.0;
    if (was > 0.0) {
        scale = sqrt(wanted) / sqrt(was);
    }
    for (var i = lane; i < c.dim; i += LANES) {
        out[to + i] = a[begins + i] * scale;
    }
