//! Colours, in light and in dark. Series can be told apart by people who see red or green or blue differently.

/// What a shape is drawn with: a meaning, which has a colour in each theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ink {
    /// The ground.
    Paper,
    /// Titles, labels, values.
    Text,
    /// Subtitles, ticks, notes.
    Muted,
    /// Grid lines and bands.
    Grid,
    /// Axis lines and marks.
    Axis,
    /// The n-th series; they repeat.
    Series(u8),
    /// The n-th of the colours that values between two ends have; the same in both themes.
    Shade(u8),
    /// Text on dark shades, and on bright ones.
    OnDark,
    OnBright,
}

/// How many series have a colour of their own.
pub(crate) const N_SERIES: usize = SERIES.len();

/// Light and dark, as `rrggbb`.
const SERIES: [(u32, u32); 6] = [
    (0x0a4fb0, 0x6c8cff),
    (0xd6452f, 0xff6b52),
    (0x1d8693, 0x2fe0b8),
    (0x7a2f82, 0xd08ac2),
    (0x5f7a14, 0xf5cb45),
    (0x4a8cf5, 0xb4c6ff),
];

/// How many shades there are.
pub(crate) const N_SHADES: usize = SHADES.len();

/// From dark blue to yellow, brighter all the way, so that nobody needs to tell hues apart. Source: cividis, by Nunez,
/// Anderton and Renslow (PLoS ONE 13, 2018), ten of its colours.
const SHADES: [u32; 10] = [
    0x00224e, 0x123570, 0x3b496c, 0x575d6d, 0x707173, 0x8a8678, 0xa59c74, 0xc3b369, 0xe1cc55,
    0xfee838,
];

impl Ink {
    /// The shade of a share from 0 to 1.
    pub(crate) fn shade(share: f64) -> Ink {
        let steps = (N_SHADES - 1) as f64;
        // what is no number becomes 0
        Ink::Shade((share.clamp(0.0, 1.0) * steps).round() as u8)
    }

    /// What a text on this shade is drawn with.
    pub(crate) fn over(self) -> Ink {
        match self {
            Ink::Shade(n) if usize::from(n) < N_SHADES / 2 => Ink::OnDark,
            _ => Ink::OnBright,
        }
    }

    /// The ink of the n-th series.
    pub(crate) fn series(n: usize) -> Ink {
        Ink::Series((n % N_SERIES) as u8)
    }

    /// Every ink.
    pub(crate) fn all() -> impl Iterator<Item = Ink> {
        let plain = [Ink::Paper, Ink::Text, Ink::Muted, Ink::Grid, Ink::Axis];
        plain.into_iter().chain((0..N_SERIES).map(Ink::series)).chain(Ink::of_shades())
    }

    /// Those that a picture has only if it uses them.
    pub(crate) fn of_shades() -> impl Iterator<Item = Ink> {
        let shades = (0..N_SHADES).map(|n| Ink::Shade(n as u8));
        shades.chain([Ink::OnDark, Ink::OnBright])
    }

    fn both(self) -> (u32, u32) {
        match self {
            Ink::Paper => (0xffffff, 0x14171c),
            Ink::Text => (0x1c2128, 0xe8eaed),
            Ink::Muted => (0x5b6470, 0xa4adb9),
            Ink::Grid => (0xe3e6ea, 0x2b313a),
            Ink::Axis => (0x8b939e, 0x6b7480),
            Ink::Series(n) => SERIES[n as usize % N_SERIES],
            Ink::Shade(n) => (SHADES[n as usize % N_SHADES], SHADES[n as usize % N_SHADES]),
            Ink::OnDark => (0xffffff, 0xffffff),
            Ink::OnBright => (0x0b0d10, 0x0b0d10),
        }
    }

    /// On white, as `0xrrggbb`.
    pub(crate) fn light(self) -> u32 {
        self.both().0
    }

    /// On near black.
    pub(crate) fn dark(self) -> u32 {
        self.both().1
    }

    /// Name of its class in an SVG.
    pub(crate) fn class(self) -> String {
        match self {
            Ink::Paper => "p".into(),
            Ink::Text => "t".into(),
            Ink::Muted => "m".into(),
            Ink::Grid => "g".into(),
            Ink::Axis => "a".into(),
            Ink::Series(n) => format!("s{n}"),
            Ink::Shade(n) => format!("h{n}"),
            Ink::OnDark => "od".into(),
            Ink::OnBright => "ob".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear red, green, blue of an sRGB colour.
    fn linear(colour: u32) -> [f64; 3] {
        [16, 8, 0].map(|shift| {
            let c = f64::from(colour >> shift & 0xff) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// WCAG 2: contrast of two colours.
    fn contrast(a: u32, b: u32) -> f64 {
        let light = |c: u32| {
            let [r, g, b] = linear(c);
            0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
        };
        (light(a) / light(b)).max(light(b) / light(a))
    }

    fn times(m: [[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        m.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum())
    }

    /// Oklab, where distance is about difference seen. Source: B. Ottosson, 2020.
    fn oklab(rgb: [f64; 3]) -> [f64; 3] {
        let lms = times(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ],
            rgb.map(|c| c.clamp(0.0, 1.0)),
        );
        times(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ],
            lms.map(f64::cbrt),
        )
    }

    /// What people see who lack a kind of cone. Source: Machado, Oliveira and Fernandes 2009, severity 1.
    const SIGHTS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    #[test]
    fn every_ink_can_be_read_on_its_ground() {
        for theme in [Ink::light, Ink::dark] {
            let ground = theme(Ink::Paper);
            for ink in Ink::all() {
                let least = match ink {
                    // text on shades is tried on them
                    Ink::Paper | Ink::Grid | Ink::Shade(_) | Ink::OnDark | Ink::OnBright => 1.0,
                    Ink::Text | Ink::Muted => 4.5,
                    Ink::Axis | Ink::Series(_) => 3.0,
                };
                assert!(contrast(theme(ink), ground) >= least, "{ink:?}");
            }
        }
    }

    #[test]
    fn shades_become_brighter_for_every_sight_and_can_be_written_on() {
        for sight in SIGHTS {
            let light = |n: usize| oklab(times(sight, linear(SHADES[n])))[0];
            assert!((1..N_SHADES).all(|n| light(n) > light(n - 1) + 0.03), "{sight:?}");
        }
        for ink in (0..N_SHADES).map(|n| Ink::Shade(n as u8)) {
            assert!(contrast(ink.light(), ink.over().light()) >= 4.5, "{ink:?}");
        }
    }

    #[test]
    fn series_differ_for_every_sight() {
        for theme in [Ink::light, Ink::dark] {
            for sight in SIGHTS {
                let seen = |n: usize| oklab(times(sight, linear(theme(Ink::series(n)))));
                for (a, b) in (0..N_SERIES).flat_map(|b| (0..b).map(move |a| (a, b))) {
                    let square = |i: usize| (seen(a)[i] - seen(b)[i]).powi(2);
                    let distance = (square(0) + square(1) + square(2)).sqrt();
                    // The first three, which most charts make do with, further apart.
                    let least = if b < 3 { 0.11 } else { 0.058 };
                    assert!(distance >= least, "{a} {b} {distance}");
                }
            }
        }
    }
}
