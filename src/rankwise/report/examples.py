"""Single rankings to look at: as pictures where there are any, else as tables."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rankwise.problems.inspection import Drawing, Inspection
from rankwise.report.content import Frame, Gallery, Picture, Section, Strip, Table, Tables
from rankwise.report.lists import Top, lists_by_value, top_of

__all__ = ["data_uri", "example_sections", "plural", "png"]

FIRST = 10
SMALL, MEDIUM = 64, 360
MISTAKES = 8
# Where the lists to look at stand, from the worst value to the best.
SHARES = (0, 0.1, 0.35, 0.65, 0.9, 1)
# From this size on a photograph is much smaller as JPEG.
LARGE = 100


def example_sections(inspection: Inspection, metric: str) -> list[Section]:
    """Return sections with the worst, the best and some other lists; for a single list, with its worst errors."""
    sections = [_drawings(inspection.drawings)] if inspection.drawings else []
    if len(inspection.evaluation.query_ids) == 1:
        return [*sections, _mistakes(inspection)]
    chosen = _some(inspection, metric)
    if not chosen:
        return sections
    tops = [(standing, top_of(inspection, number, FIRST)) for standing, number in chosen]
    if inspection.item_picture is not None:
        return [*sections, _gallery(inspection, metric, tops)]
    return [*sections, _tables(inspection, metric, tops)]


def plural(word: str, count: int) -> str:
    """Return a word in the plural, unless the count is 1.

    Example:
        >>> plural("query", 2), plural("class", 3), plural("user", 1)
        ('queries', 'classes', 'user')
    """
    if count == 1:
        return word
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x")) else f"{word}s"


def _some(inspection: Inspection, metric: str) -> list[tuple[str, int]]:
    """Return the worst list, the best and some between that differ, each with how many are worse."""
    order = lists_by_value(inspection, metric)
    values = inspection.evaluation.per_query[metric]
    different = values[order].unique()
    spread = dict.fromkeys(round(share * (len(different) - 1)) for share in SHARES) if len(order) else {}
    chosen = []
    for value in different[list(spread)]:
        number = int(order[values[order] == value][0])
        worse = 100 * int((values < value).sum()) // len(order)
        standing = f"better than {worse} % of the {plural(inspection.list_word, 2)}"
        if value == different[0] or value == different[-1]:
            standing = "none is worse" if value == different[0] else "none is better"
        chosen.append((standing, number))
    return chosen


def _gallery(inspection: Inspection, metric: str, tops: list[tuple[str, Top]]) -> Section:
    strips = []
    for standing, top in tops:
        hits = sum(label > 0 for label in top.labels)
        query = None
        if inspection.list_picture is not None:
            image = inspection.list_picture(top.number)
            query = _picture(image, f"the query, {inspection.list_name(top.number)}", "query", "")
        pictures = [_item(inspection, top, index) for index in range(len(top.columns))]
        value = float(inspection.evaluation.per_query[metric][top.number])
        text = (
            f"{metric} {value:.3f}, {standing}. {hits} of the first {len(top.columns)} are right; "
            f"{top.relevant:,} of {top.items:,} {plural(inspection.item_word, 2)} are."
        )
        strips.append(Strip(inspection.list_name(top.number), text, tuple(pictures), query))
    return Section(
        "A look at the rankings",
        f"The first {FIRST} {plural(inspection.item_word, 2)} of some {plural(inspection.list_word, 2)}, best score "
        "first.",
        (
            Gallery(
                tuple(strips),
                caption="✓ and a full frame: relevant, rightly among the first. ✗ and a dashed frame: not relevant.",
            ),
        ),
    )


def _item(inspection: Inspection, top: Top, index: int) -> Picture:
    assert inspection.item_picture is not None
    name = inspection.item_name(top.number, top.columns[index])
    verdict = "right" if top.labels[index] > 0 else "wrong"
    image = inspection.item_picture(top.number, top.columns[index])
    return _picture(image, f"{index + 1}: {verdict}, {name}", f"{top.scores[index]:.3g}", verdict)


def _picture(image: torch.Tensor, alt: str, caption: str, verdict: str) -> Picture:
    return Picture(data_uri(image, SMALL), alt, caption, verdict, pixelated=max(image.shape[1:]) <= SMALL)


def _drawings(drawings: tuple[Drawing, ...]) -> Section:
    pictures = []
    for drawing in drawings:
        frames = tuple(
            Frame(box.left, box.top, box.right, box.bottom, box.caption, _verdict(box.correct)) for box in drawing.boxes
        )
        told = "; ".join(
            box.caption if box.correct is None else f"{box.caption} ({_verdict(box.correct)})" for box in drawing.boxes
        )
        alt = f"{drawing.caption}{f': {told}' if told else ''}"
        pictures.append(Picture(data_uri(drawing.picture, MEDIUM), alt, drawing.caption, frames=frames))
    return Section(
        "In the pictures",
        "What was found, and where. A full frame is right, a dashed one wrong, a dotted one was missed.",
        (Gallery((Strip("", "", tuple(pictures)),), large=True),),
    )


def _verdict(correct: bool | None) -> str:
    return "" if correct is None else "right" if correct else "wrong"


def _tables(inspection: Inspection, metric: str, tops: list[tuple[str, Top]]) -> Section:
    item = inspection.item_word
    graded = any(label not in (0, 1) for _, top in tops for label in top.labels)
    blocks = []
    for standing, top in tops:
        rows = tuple(
            (
                f"{index + 1}. {inspection.item_name(top.number, column)}",
                f"{score:.3g}",
                (f"{label:g}" if graded else "✓") if label > 0 else "-",
            )
            for index, (column, score, label) in enumerate(zip(top.columns, top.scores, top.labels, strict=True))
        )
        value = float(inspection.evaluation.per_query[metric][top.number])
        blocks.append(
            Table(
                (inspection.list_name(top.number), "score", "grade" if graded else "relevant"),
                rows,
                caption=f"{metric} {value:.3f}, {standing}; {top.relevant:,} of {top.items:,} {plural(item, 2)} are "
                "relevant.",
            )
        )
    return Section(
        "A look at the rankings",
        f"The first {FIRST} {plural(item, 2)} of some {plural(inspection.list_word, 2)}, best score first.",
        (Tables(tuple(blocks)),),
    )


def _mistakes(inspection: Inspection) -> Section:
    top = top_of(inspection, 0, 10**12)
    item = inspection.item_word
    indices: dict[str, list[int]] = {"irrelevant": [], "relevant": []}
    for index, label in enumerate(top.labels):
        indices["relevant" if label > 0 else "irrelevant"].append(index)
    blocks = []
    for title, chosen in (
        (f"relevant, but far down ({item})", indices["relevant"][: -MISTAKES - 1 : -1]),
        (f"not relevant, but high up ({item})", indices["irrelevant"][:MISTAKES]),
    ):
        rows = tuple(
            (inspection.item_name(0, top.columns[index]), f"{index + 1:,}", f"{top.scores[index]:.3g}")
            for index in chosen
        )
        blocks.append(Table((title, "position", "score"), rows))
    return Section(
        "The worst mistakes",
        f"Of {top.items:,} {plural(item, 2)}, {top.relevant:,} are relevant and should stand at the positions 1 to "
        f"{top.relevant:,}. These stand furthest from where they should; wrong labels are often among them. A row's "
        "number counts from 1 within its file.",
        (Tables(tuple(blocks)),),
    )


def data_uri(image: Tensor, side: int) -> str:
    """Return an image, uint8 (1 or 3, H, W), as a data URI, scaled down until its longer side is `side` pixels at most.

    Small ones are PNG; larger ones are JPEG where Pillow is installed.
    """
    height, width = image.shape[1:]
    longest = max(height, width)
    if longest > side:
        shape = tuple(max(1, round(length * side / longest)) for length in (height, width))
        smooth = interpolate(image[None].float(), size=shape, mode="bilinear", antialias=True, align_corners=False)
        image = smooth[0].round().clamp(0, 255).to(torch.uint8)
    kind, content = ("jpeg", _jpeg(image)) if max(image.shape[1:]) > LARGE and find_spec("PIL") else ("png", png(image))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def png(image: Tensor) -> bytes:
    """Return an image, uint8 (1 or 3, H, W), as a PNG file.

    Example:
        >>> png(torch.zeros(1, 2, 2, dtype=torch.uint8))[:8]
        b'\\x89PNG\\r\\n\\x1a\\n'
    """
    channels, height, width = image.shape
    if image.dtype != torch.uint8 or channels not in (1, 3):
        raise ValueError(f"image: expected uint8 of shape (1 or 3, H, W), got {image.dtype} {tuple(image.shape)}")
    rows = image.permute(1, 2, 0).reshape(height, width * channels)
    # Every row begins with its filter; 0 is none.
    raw = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), rows.cpu()], 1).contiguous().numpy().tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def _jpeg(image: Tensor) -> bytes:
    from PIL import Image

    pixels = image.permute(1, 2, 0).contiguous().cpu().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
