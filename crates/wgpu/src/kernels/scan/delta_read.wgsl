        y /= sqrt((found.y + c.number) * f32(c.key_dim));
