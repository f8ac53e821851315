"""The page that explains a transformer: where the bytes and the time of a training step go, by line.

    python examples/explained_transformer.py --page page.html

The program is the gradient of the small transformer that examples/characters.py trains. `fx.explain` reads what XLA has
planned for the executable. The rows of memory are the values in memory at the peak, and sum to the temporaries of the
executable. Here they are added up for each line of the model, with its layers rematerialised and without that.

The picture has one bar for each of the two. A colour is a line of the model, and its width the bytes that this line
holds when memory is fullest.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import characters
from pictures import COLORS, INK, add_option, drawing

import fxad as fx
from fxad import random

SHOWN = 5  # lines


def explained(lean: bool) -> tuple[Any, int]:
    """Return the page of the gradient, and the temporaries of its executable."""
    params = characters.initial(random.key(0))
    text = fx.Spec((characters.BATCH, characters.CONTEXT + 1), "int32")
    gradient = fx.value_and_grad(fx.trace(partial(characters.loss, lean=lean), params, text))
    executable: fx.Executable[..., object] = fx.lower(gradient).compile()
    return fx.explain(executable), executable.memory().temp_bytes


def by_line(page: Any) -> Counter[str]:
    """Return the bytes of each line at the peak."""
    out: Counter[str] = Counter()
    for row in page.memory:
        out[row.line.short if row.line else "no line"] += row.bytes
    return out


def plot(file: str, plain: Counter[str], lean: Counter[str]) -> None:
    """Draws the bytes of the largest lines, in both programs."""
    chosen = [name for name, _ in (plain | lean).most_common(SHOWN)]
    with drawing(file, columns=1) as ax:
        for k, (name, bytes_of) in enumerate((("as it is", plain), ("layers rematerialised", lean))):
            left = 0.0
            for line, color in zip(chosen, COLORS, strict=False):
                ax.barh(k, bytes_of[line] / 1024, left=left, color=color, label=None if k else line)
                left += bytes_of[line] / 1024
            rest = (bytes_of.total() / 1024) - left
            ax.barh(k, rest, left=left, color=INK, alpha=0.4, label=None if k else "other lines")
            ax.annotate(f"{name}: {bytes_of.total() / 1024:,.0f} KiB", (60, k + 0.42), color=INK, va="bottom")
        ax.set(xlabel="KiB of temporaries at the peak", yticks=[], ylim=(-0.6, 1.9))
        ax.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Explains both programs, and returns their figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--page", metavar="FILE", help="write the page here, as HTML")
    add_option(parser)
    options = parser.parse_args(argv)
    (plain, plain_bytes), (lean, lean_bytes) = explained(lean=False), explained(lean=True)
    print("\n".join(lean.verdict))
    for line, size in by_line(lean).most_common(SHOWN):
        print(f"{size:10,}  {line}")
    print(f"{lean_bytes:,} bytes in all; {plain_bytes:,} if the layers are not rematerialised")
    if options.page:
        lean.save(options.page)
    if options.plot:
        plot(options.plot, by_line(plain), by_line(lean))
    sums = [abs(sum(by_line(page).values()) - n) for page, n in ((plain, plain_bytes), (lean, lean_bytes))]
    return {"plain": plain_bytes, "lean": lean_bytes, "missing": sum(sums)}


if __name__ == "__main__":
    main()
