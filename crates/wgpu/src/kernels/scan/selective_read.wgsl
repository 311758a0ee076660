        if (is_used) {
            y += vectors[c.d + column] * v;
        }
