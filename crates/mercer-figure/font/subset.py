"""Writes `outlines.bin`: the outlines of the letters that figures need, of DejaVu Sans and DejaVu Sans Bold.

Needs fonttools. Run: python3 subset.py /usr/share/fonts/truetype/dejavu

The file is compressed by zlib. For each of the two faces, regular and bold: the number of glyphs (u16), and for each glyph, by code point,
its code point (u32), advance (u16) and number of contours (u8); for each contour its number of points (u8); for each point x and y (i16)
and whether it is on the curve (u8). Points off the curve are control points of quadratic curves, as in TrueType. All numbers are
little-endian; a letter is 2048 units high.
"""

import struct
import sys
import zlib

from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont

CHARACTERS = (
    list(range(0x20, 0x7F))  # ASCII
    + list(range(0xA0, 0x180))  # Latin with accents
    + list(range(0x391, 0x3CA))  # Greek
    + list(range(0x2070, 0x2095))  # superscripts and subscripts
    + [0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2016, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026, 0x202F, 0x2032, 0x2033]
    + [0x2190, 0x2192, 0x2194, 0x21A6, 0x2202, 0x2207, 0x2208, 0x2211, 0x2212, 0x221A, 0x221E, 0x222B, 0x2248, 0x2260]
    + [0x2264, 0x2265, 0x22C5, 0x27E8, 0x27E9, 0x211D, 0x210E]
)


def contours(recorded):
    """Lists of points (x, y, on the curve)."""
    found = []
    for kind, points in recorded:
        if kind == "moveTo":
            found.append([(*points[0], 1)])
        elif kind == "lineTo":
            found[-1].append((*points[0], 1))
        elif kind == "qCurveTo":
            *off, last = points
            if last is None:  # no point is on the curve
                found.append([(*p, 0) for p in off])
            else:
                found[-1] += [(*p, 0) for p in off] + [(*last, 1)]
        elif kind not in ("closePath", "endPath"):
            raise ValueError(kind)
    for contour in found:
        if len(contour) > 1 and contour[0] == contour[-1]:
            contour.pop()
    return found


def face(path):
    font = TTFont(path)
    cmap, glyphs = font.getBestCmap(), font.getGlyphSet()
    known = [c for c in sorted(set(CHARACTERS)) if c in cmap]
    out = struct.pack("<H", len(known))
    assert font["head"].unitsPerEm == 2048
    for character in known:
        pen = DecomposingRecordingPen(glyphs)
        glyphs[cmap[character]].draw(pen)
        lines = contours(pen.value)
        out += struct.pack("<IHB", character, glyphs[cmap[character]].width, len(lines))
        for line in lines:
            out += struct.pack("<B", len(line)) + b"".join(struct.pack("<hhB", round(x), round(y), on) for x, y, on in line)
    return out


folder = sys.argv[1]
both = b"".join(face(f"{folder}/{name}.ttf") for name in ["DejaVuSans", "DejaVuSans-Bold"])
with open("outlines.bin", "wb") as file:
    file.write(zlib.compress(both, 9))
