    var sums = array<vec4<u32>, 4>();
    for (var round = 0u; round < c.rounds; round++) {
        for (var i = 0u; i < c.each; i += 4u) {
            let first = at + i * lanes;
            sums[0] += data[first];
            sums[1] += data[first + lanes];
            sums[2] += data[first + 2u * lanes];
            sums[3] += data[first + 3u * lanes];
        }
    }
    let found = any((sums[0] | sums[1] | sums[2] | sums[3]) != vec4(0u));
