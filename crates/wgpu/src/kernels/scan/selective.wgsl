        var time = 0.0;
        if (is_used) {
            time = input_3(row, column);
        }
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim && is_used) {
                let stays = exp(time * vectors[c.a + column * c.key_dim + i]);
                matrix[j] = stays * matrix[j] + input_1(row, i) * (time * v);
                y += query(row, i) * matrix[j];
            }
        }
