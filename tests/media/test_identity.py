"""A key changes with whatever changes an artifact, and with nothing else."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.artifact import Artifact
from firstlight.media.decode import decode_image
from firstlight.media.identity import (
    ArtifactKey,
    artifact_key,
    fingerprint_of,
    request_options,
    take_snapshot,
)
from tests.media.files import encoded, halves, noise, opened

DEFAULTS = {"detail": "auto", "frames": 8, "exact": False}
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def key(**changed: object) -> ArtifactKey:
    fields: dict[str, object] = {
        "digest": A,
        "check": "1.0",
        "modality": "image",
        "fingerprint": "f",
        "options": {},
    }
    return artifact_key(**{**fields, **changed})  # type: ignore[arg-type]


def test_the_envelope_and_what_is_empty_or_the_default_is_no_option() -> None:
    part: dict[str, object] = {
        "type": "image_url",
        "format": "png",
        "url": "https://a.example/",
        "image": "a.png",
        "video": None,
        "audio": "b",
        "content_hash": A,
        "a": None,
        "b": "",
        "c": [],
        "d": {},
        "detail": "auto",
        "frames": 8,
        "exact": False,
    }
    assert request_options(part, DEFAULTS) == {}


def test_an_option_that_says_something_is_kept_even_if_nobody_declared_it() -> None:
    part = {"type": "image", "detail": "low", "new": 0, "flag": False}
    assert request_options(part, DEFAULTS) == {"detail": "low", "new": 0, "flag": False}


@pytest.mark.parametrize("value", [8.0, "8", True, [8]])
def test_a_default_is_recognised_by_its_type_as_well(value: object) -> None:
    assert request_options({"frames": value}, DEFAULTS) == {"frames": value}


def test_an_option_without_a_canonical_form_is_refused() -> None:
    with pytest.raises(TypeError):
        request_options({"a": object()}, {})


def test_a_default_option_and_none_give_one_key() -> None:
    """E2"""
    options = [request_options(part, DEFAULTS) for part in ({}, {"detail": "auto"})]
    assert key(options=options[0]) == key(options=options[1])


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": B},
        {"modality": "video"},
        {"fingerprint": "g"},
        {"options": {"detail": "low"}},
        {"options": {"unknown": 1}},
        {"options": {"unknown": 1.0}},
    ],
)
def test_whatever_changes_the_artifact_changes_the_key(changed: dict[str, object]) -> None:
    """E2"""
    assert key(**changed).name != key().name


def test_a_key_has_all_bits_of_its_hash() -> None:
    assert key().name.startswith("sha256:")
    assert len(key().name) == len(A)


def test_content_of_equal_digest_is_told_apart_by_its_check() -> None:
    """H14: as if the digest had been forced to a constant."""
    assert key(check="1.1").name == key().name
    assert str(key(check="1.1")) != str(key())


def artifact(key: object, digest: str = A) -> Artifact:
    return Artifact({"pixels": torch.zeros(1)}, (1, 1), digest, str(key))


def test_an_artifact_matches_its_own_key_only() -> None:
    own = key()
    assert own.matches(artifact(own))
    assert key(check="").matches(artifact(own))  # a caller vouches for the digest
    for other in (artifact(own, B), artifact(key(check="1.1")), artifact(key(modality="video"))):
        assert not own.matches(other)
    assert not key(check="", modality="video").matches(artifact(own))


def test_facts_without_a_canonical_form_have_no_fingerprint() -> None:
    assert fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1})
    with pytest.raises(TypeError):
        fingerprint_of({"a": object()})


# -- snapshots ---------------------------------------------------------------------------------


def test_a_files_snapshot_is_its_bytes_and_is_not_decoded() -> None:
    data = b"no image at all"
    snapshot = take_snapshot(data)
    assert snapshot.data == data
    assert snapshot.check.startswith("15.")


def test_a_later_change_of_an_image_does_not_reach_its_snapshot() -> None:
    image = noise()
    snapshot = take_snapshot(image)
    before = copy.deepcopy(snapshot.data)
    image.paste((0, 0, 0), (0, 0, 8, 8))
    assert snapshot.data == before
    assert take_snapshot(image).digest != snapshot.digest


def test_an_image_that_cannot_be_loaded_has_no_snapshot() -> None:
    """E1"""
    broken = opened(encoded(noise(), "JPEG")[:-200])
    with pytest.raises(MediaError, match="truncated or corrupt"):
        take_snapshot(broken)


def test_a_file_that_cannot_be_decoded_fails_when_it_is_decoded() -> None:
    """E1"""
    snapshot = take_snapshot(encoded(noise(), "JPEG")[:-200])
    with pytest.raises(MediaError, match="truncated or corrupt"):
        decode_image(snapshot.data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_snapshot_is_upright_as_its_image_is(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(halves(), kind, exif=exif)
    snapshot = take_snapshot(opened(file))
    assert isinstance(snapshot.data, Image.Image)
    from_copy, from_file = decode_image(snapshot.data), decode_image(file)
    assert from_copy.pixels.size == from_file.pixels.size
    assert from_copy.pixels.tobytes() == from_file.pixels.tobytes()
    assert snapshot.digest == take_snapshot(opened(file)).digest


def test_images_that_differ_in_one_pixel_have_different_snapshots() -> None:
    one, other = noise(), noise()
    other.putpixel((63, 63), (1, 2, 3))
    a, b = take_snapshot(one), take_snapshot(other)
    assert a.digest != b.digest
    assert a.check != b.check
    assert take_snapshot(noise()).digest == a.digest


def test_an_image_and_its_file_are_different_content() -> None:
    stream = io.BytesIO()
    noise().save(stream, "PNG")
    assert take_snapshot(stream.getvalue()).digest != take_snapshot(noise()).digest
