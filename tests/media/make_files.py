"""Makes the small pictures and films beside it, which tests read and fuzzers start from.

    python make_files.py        needs pillow, numpy and the ffmpeg program

Every picture shows, at column x and row y of 12 x 8, the colour (20 x, 30 y, 10 (x + y)), changed as its name says.
Every film shows 6 frames of 48 x 32 at 12 a second: frame i is grey 30 + 30 i, its left half 20 darker.
"""

import pathlib
import struct
import subprocess
import zlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
Y, X = np.mgrid[0:8, 0:12]
RGB = np.stack([20 * X, 30 * Y, 10 * (X + Y)], -1).astype(np.uint8)
PICTURE = Image.fromarray(RGB)
GREY = Image.fromarray((20 * X).astype(np.uint8))


def png_16_bits():
    """Pillow does not write 16-bit colour."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + (row.astype(">u2") * 257).astype(">u2").tobytes() for row in RGB)
    header = struct.pack(">IIBBBBB", 12, 8, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def pictures():
    PICTURE.save(HERE / "rgb.png")
    (HERE / "rgb16.png").write_bytes(png_16_bits())
    GREY.save(HERE / "grey.png")
    PICTURE.quantize(96).save(HERE / "palette.png")
    alpha = Image.fromarray(np.dstack([RGB, np.where(X < 6, 255, 51).astype(np.uint8)]))
    alpha.save(HERE / "alpha.png")
    alpha.save(HERE / "alpha.webp", lossless=True, exact=True)
    PICTURE.save(HERE / "lossy.webp", quality=95)
    PICTURE.save(HERE / "animated.webp", save_all=True, append_images=[PICTURE.rotate(180)], lossless=True, duration=100)
    PICTURE.save(HERE / "rgb.jpg", quality=98, subsampling=0)
    PICTURE.save(HERE / "progressive.jpg", quality=98, subsampling=0, progressive=True)
    GREY.save(HERE / "grey.jpg", quality=98)
    PICTURE.convert("CMYK").save(HERE / "cmyk.jpg", quality=98, subsampling=0)
    for turn in (3, 6, 8, 5):
        exif = Image.Exif()
        exif[0x0112] = turn
        PICTURE.save(HERE / f"turned{turn}.png", exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 6
    PICTURE.save(HERE / "turned6.jpg", quality=98, subsampling=0, exif=exif)
    PICTURE.save(HERE / "turned6.webp", lossless=True, exif=exif)
    PICTURE.save(HERE / "rgb.bmp")
    PICTURE.quantize(96).save(HERE / "palette.bmp")
    alpha.save(HERE / "alpha.bmp")
    GREY.convert("1").save(HERE / "bits.bmp")
    PICTURE.quantize(96).save(HERE / "palette.gif")
    PICTURE.quantize(96).save(HERE / "interlaced.gif", interlace=1)
    hole = PICTURE.quantize(96)
    hole.info["transparency"] = hole.getpixel((0, 0))
    hole.save(HERE / "transparent.gif", save_all=True, append_images=[PICTURE.rotate(180).quantize(96)], duration=100)


def films():
    frames = np.stack([np.where(np.arange(48)[None, :, None] < 24, -20, 0) + 30 + 30 * i + np.zeros((32, 48, 3), int) for i in range(6)])
    raw = frames.astype(np.uint8).tobytes()
    picture = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "48x32", "-r", "12", "-i", "-"]
    sound = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=16000:duration=0.5"]
    exact = ["-fflags", "+bitexact", "-flags", "+bitexact", "-threads", "1"]

    def make(name, options, with_sound):
        inputs = picture + (sound if with_sound else [])
        subprocess.run(["ffmpeg", "-y", "-v", "error", *inputs, *options, *exact, HERE / name], input=raw, check=True)

    h264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "8"]
    make("film.mp4", [*h264, "-c:a", "aac"], True)
    make("fragmented.mp4", [*h264, "-movflags", "frag_keyframe+empty_moov", "-g", "2"], False)
    make("film.mov", ["-c:v", "mpeg4", "-q:v", "1"], False)
    make("film.avi", ["-c:v", "mpeg4", "-q:v", "1"], False)
    make("film.webm", ["-c:v", "libvpx-vp9", "-crf", "4", "-b:v", "0", "-c:a", "libopus"], True)
    make("film.mkv", [*h264, "-c:a", "flac"], True)
    turn = ["-c", "copy", "-an", "-metadata:s:v", "rotate=90"]
    subprocess.run(["ffmpeg", "-y", "-v", "error", "-i", HERE / "film.mp4", *turn, *exact, HERE / "turned.mp4"], check=True)
    subprocess.run(["ffmpeg", "-y", "-v", "error", *sound, "-c:a", "aac", *exact, HERE / "tone.m4a"], check=True)
    subprocess.run(["ffmpeg", "-y", "-v", "error", *sound, "-c:a", "aac", *exact, HERE / "tone.aac"], check=True)


if __name__ == "__main__":
    pictures()
    films()
