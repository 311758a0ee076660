#!/usr/bin/env python3
"""Records a conversation with Rooflight as an SVG picture, for light and dark pages.

    docs/pictures/record.py                          # the bundled model, target/release/rooflight -> docs/pictures/chat.svg
    docs/pictures/record.py --model FILE -o OUT.svg  # another model

Runs the real program in a pseudo-terminal, sends MESSAGES, and draws what the terminal shows at the end. The seed is fixed, so the text is
the same each time; rates and shares are those of this machine. Needs Python 3.9 and no packages; Linux and macOS.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from html import escape

COLUMNS = 80
MESSAGES = ["Hello! Who are you?", "Tell me a story about a fox.", "/bye"]
PROMPT = ">>> "
PAUSE = 1.2  # seconds before each message, in the picture
TIME_LIMIT = 120.0  # seconds for one reply

# width and height of a character, and the margin, in pixels
WIDTH, HEIGHT, MARGIN = 8.4, 20, 16

SEQUENCE = re.compile(r"\x1b\[([?>]?)([0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()].|\x1b[=>78]")


class Screen:
    """Rows of a terminal without an end: characters with their styles, and the time at which each row was last written."""

    def __init__(self) -> None:
        self.rows: list[dict[int, tuple[str, str]]] = [{}]
        self.times: list[float] = [0.0]
        self.row = self.column = 0
        self.style: set[str] = set()
        self.rest = ""

    def feed(self, text: str, now: float) -> None:
        text = self.rest + text
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = SEQUENCE.match(text, at)
                if found is None and len(text) - at < 64:
                    break  # the rest comes with the next piece
                if found is not None and found.group(3):
                    self.control(found.group(1), found.group(2), found.group(3))
                at = at + 1 if found is None else found.end()
                continue
            self.put(text[at], now)
            at += 1
        self.rest = text[at:]

    def put(self, char: str, now: float) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.move(self.row + 1, 0 if self.column >= COLUMNS else self.column)
        elif char == "\b":
            self.column = max(self.column - 1, 0)
        elif char >= " ":
            if self.column >= COLUMNS:
                self.move(self.row + 1, 0)
            self.rows[self.row][self.column] = (char, " ".join(sorted(self.style)))
            self.times[self.row] = now
            self.column += 1

    def move(self, row: int, column: int) -> None:
        self.row, self.column = max(row, 0), max(column, 0)
        while len(self.rows) <= self.row:
            self.rows.append({})
            self.times.append(0.0)

    def control(self, private: str, parameters: str, final: str) -> None:
        if private:
            return
        numbers = [int(n) if n else 0 for n in parameters.split(";")]
        first = numbers[0] or 1
        if final in "ABCD":
            rows, columns = {"A": (-first, 0), "B": (first, 0), "C": (0, first), "D": (0, -first)}[final]
            self.move(self.row + rows, min(self.column, COLUMNS) + columns)
        elif final == "G":
            self.column = first - 1
        elif final == "K":
            mode, row = numbers[0], self.rows[self.row]
            gone = {0: lambda c: c >= self.column, 1: lambda c: c <= self.column, 2: lambda c: True}[mode]
            self.rows[self.row] = {c: cell for c, cell in row.items() if not gone(c)}
        elif final == "J":
            self.control("", "0", "K")
            del self.rows[self.row + 1 :], self.times[self.row + 1 :]
        elif final == "m":
            self.set_style(numbers)

    def set_style(self, numbers: list[int]) -> None:
        for n in numbers:
            if n == 0:
                self.style = set()
            elif n in (1, 2, 3, 4):
                self.style.add({1: "bold", 2: "dim", 3: "italic", 4: "underline"}[n])
            elif n == 22:
                self.style -= {"bold", "dim"}
            elif n in (23, 24):
                self.style.discard({23: "italic", 24: "underline"}[n])
            elif 30 <= n <= 37 or n == 39:
                self.style = {s for s in self.style if not s.startswith("c3")}
                if n != 39:
                    self.style.add(f"c{n}")

    def last_line(self) -> str:
        return "".join(char for _, (char, _) in sorted(self.rows[-1].items()))


def record(command: list[str]) -> Screen:
    """Runs the command in a terminal, sends MESSAGES, and returns what the terminal shows at the end."""
    with tempfile.TemporaryDirectory() as state:
        process, terminal = pty.fork()
        if process == 0:
            os.environ.update(TERM="xterm-256color", XDG_STATE_HOME=state)
            os.execv(command[0], command)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        screen, decoder, shown, began = Screen(), codecs.getincrementaldecoder("utf-8")(), 0.0, time.monotonic()

        def read(done) -> bool:
            """Feeds the screen until `done`; returns whether the program has ended."""
            until, last = time.monotonic() + TIME_LIMIT, time.monotonic()
            while True:
                ready, _, _ = select.select([terminal], [], [], 0.05)
                if ready:
                    try:
                        piece = os.read(terminal, 1 << 16)
                    except OSError:
                        piece = b""
                    if not piece:
                        return True
                    last = time.monotonic()
                    screen.feed(decoder.decode(piece), shown + last - began)
                elif done() and time.monotonic() - last > 0.3:
                    return False
                if time.monotonic() > until:
                    sys.exit(f"{command[0]}: no answer for {TIME_LIMIT:.0f} s")

        ended = read(lambda: screen.last_line().startswith(PROMPT))
        shown, began = PAUSE, time.monotonic()  # the picture begins when the program is ready
        screen.times = [0.0] * len(screen.times)
        for message in MESSAGES:
            if ended:
                sys.exit(f"{command[0]} ended early:\n" + "\n".join(lines(screen)))
            os.write(terminal, message.encode() + b"\r")
            rows = len(screen.rows)
            ended = read(lambda: len(screen.rows) > rows and screen.last_line().rstrip() == PROMPT.rstrip())
            shown += time.monotonic() - began + PAUSE
            began = time.monotonic()
        os.close(terminal)
        _, status = os.waitpid(process, 0)
        if status != 0:
            sys.exit(f"{command[0]}: status {status}")
    return screen


def lines(screen: Screen) -> list[str]:
    return ["".join(row.get(c, (" ", ""))[0] for c in range(max(row, default=-1) + 1)).rstrip() for row in screen.rows]


STYLE = """
    .page { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328; white-space: pre }
    text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
    .dim { fill: #656d76 } .bold { font-weight: 600 } .italic { font-style: italic } .underline { text-decoration: underline }
    .c31 { fill: #cf222e } .c32 { fill: #116329 } .c33 { fill: #7d4e00 } .c34 { fill: #0969da } .c35 { fill: #8250df } .c36 { fill: #1b7c83 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #30363d } text { fill: #e6edf3 } .dim { fill: #8b949e }
      .c31 { fill: #ff7b72 } .c32 { fill: #3fb950 } .c33 { fill: #d29922 } .c34 { fill: #58a6ff } .c35 { fill: #bc8cff } .c36 { fill: #39c5cf }
    }
    @keyframes show { from { opacity: 0 } to { opacity: 1 } }
    .row { animation: show 1ms linear both }
    @media (prefers-reduced-motion: reduce) { .row { animation: none } }
"""


def draw(screen: Screen) -> str:
    """Returns the picture: a group for each row, which appears when the row was written."""
    texts = lines(screen)
    last = max((i for i, text in enumerate(texts) if text), default=0)
    while last and texts[last].strip() in (PROMPT.strip(), PROMPT + MESSAGES[-1]):
        last -= 1
    width, height = 2 * MARGIN + COLUMNS * WIDTH, 2 * MARGIN + (last + 1) * HEIGHT
    size = f'width="{width:g}" height="{height}" viewBox="0 0 {width:g} {height}"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">']
    out.append("  <title>A conversation with Rooflight in a terminal</title>")
    out.append(f"  <desc>{escape(chr(10).join(texts[: last + 1]))}</desc>")
    out.append(f"  <style>{STYLE}  </style>")
    out.append(f'  <rect class="page" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1}" rx="8"/>')
    for i in range(last + 1):
        runs = styled_runs(screen.rows[i])
        if not runs:
            continue
        delay = f' style="animation-delay:{screen.times[i]:.2f}s"' if screen.times[i] else ""
        out.append(f'  <g class="row"{delay}>')
        for column, text, style in runs:
            x, y = MARGIN + column * WIDTH, MARGIN + i * HEIGHT + 15
            look = f' class="{style}"' if style else ""
            out.append(f'    <text x="{x:g}" y="{y}" textLength="{len(text) * WIDTH:g}"{look}>{escape(text)}</text>')
        out.append("  </g>")
    return "\n".join([*out, "</svg>", ""])


def styled_runs(row: dict[int, tuple[str, str]]) -> list[tuple[int, str, str]]:
    """Returns (column, text, style) of neighbouring characters with one style, without blanks at the ends."""
    runs: list[tuple[int, str, str]] = []
    for column, (char, style) in sorted(row.items()):
        if runs and runs[-1][2] == style and runs[-1][0] + len(runs[-1][1]) == column:
            runs[-1] = (runs[-1][0], runs[-1][1] + char, style)
        else:
            runs.append((column, char, style))
    trimmed = [(column + len(text) - len(text.lstrip()), text.strip(), style) for column, text, style in runs]
    return [run for run in trimmed if run[1]]


def main() -> None:
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description="Record a conversation with Rooflight as an SVG picture.")
    parser.add_argument("--program", type=pathlib.Path, default=root / "target/release/rooflight")
    parser.add_argument("--model", help="a GGUF file or a name; the bundled model by default")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=root / "docs/pictures/chat.svg")
    options = parser.parse_args()
    if not options.program.is_file():
        sys.exit(f"{options.program}: no such program; ./x build makes it")
    model = [options.model, "-n", "200"] if options.model else []  # the bundled model has a bound of its own
    screen = record([str(options.program), "run", *model, "--no-chats", "-s", "1"])
    options.output.write_text(draw(screen), encoding="utf-8")
    print("\n".join(lines(screen)).rstrip())


if __name__ == "__main__":
    main()
