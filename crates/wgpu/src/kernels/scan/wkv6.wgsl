        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                let k = input_1(row, keys + i);
                let first = vectors[c.a + head * c.key_dim + i];
                y += query(row, keys + i) * (matrix[j] + first * k * v);
                matrix[j] = exp(input_3(row, keys + i)) * matrix[j] + k * v;
            }
        }
