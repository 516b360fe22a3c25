"""A web address has one reading, and is refused where another parser would have a second."""

from __future__ import annotations

import pytest

from firstlight.errors import MediaError
from firstlight.media.web_address import WebAddress, parse_web_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://Example.ORG", ("http", "example.org", 80, "/")),
        ("https://example.org./a?b=1#c", ("https", "example.org", 443, "/a?b=1")),
        ("HTTPS://example.org:8443/a b", ("https", "example.org", 8443, "/a%20b")),
        ("http://bücher.example/ü", ("http", "xn--bcher-kva.example", 80, "/%C3%BC")),
        ("http://[::1]:80/", ("http", "::1", 80, "/")),
        ("http://2130706433/", ("http", "2130706433", 80, "/")),
        ("https://example.org?x=1", ("https", "example.org", 443, "/?x=1")),
    ],
)
def test_an_address_is_read_into_its_one_form(
    text: str, expected: tuple[str, str, int, str]
) -> None:
    if " " in text:
        text = text.replace(" ", "%20")
    assert parse_web_address(text) == WebAddress(*expected)


@pytest.mark.parametrize(
    "text",
    [
        "http://",
        "http:///a.png",
        "http:example.org/a.png",
        "http://a..b/",
        "http://.example.org/",
        "http://exa mple.org/",
        "http://example.org/a b",
        "http://example.org/\n",
        "http://allowed.example\\@10.0.0.1/",
        "http://10.0.0.1\\.allowed.example/",
        "http://%31%30.0.0.1/",
        "http://１０.0.0.1/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://0177.0.0.1/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://example.org:port/",
        "http://" + "a" * 300 + "/",
    ],
)
def test_a_malformed_or_doubtful_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(
        MediaError, match=r"^the web address of the picture is malformed$"
    ) as caught:
        parse_web_address(text)
    assert caught.value.__context__ is None  # a parser's own exception quotes the address


@pytest.mark.parametrize("text", ["ftp://a.example/", "gopher://a.example/", "file:///a", "//a/b"])
def test_other_schemes_are_refused(text: str) -> None:
    with pytest.raises(MediaError, match="neither http nor https"):
        parse_web_address(text)


@pytest.mark.parametrize("user", ["anna", "anna:secret", "allowed.example:80", ":secret"])
def test_a_user_name_is_refused_and_not_repeated(user: str) -> None:
    with pytest.raises(MediaError, match="user name or a password") as caught:
        parse_web_address(f"http://{user}@a.example/")
    assert user not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/c?d=2", WebAddress("https", "a.example", 8443, "/c?d=2")),
        ("c", WebAddress("https", "a.example", 8443, "/x/c")),
        ("//b.example/c", WebAddress("https", "b.example", 443, "/c")),
        ("http://b.example", WebAddress("http", "b.example", 80, "/")),
        ("https://[2600::1]:99/", WebAddress("https", "2600::1", 99, "/")),
    ],
)
def test_a_redirect_is_read_from_where_it_stands(location: str, expected: WebAddress) -> None:
    assert parse_web_address("https://a.example:8443/x/y?z#f").join(location) == expected


@pytest.mark.parametrize(
    "location", ["ftp://b.example/", "http://[::1", "http://u@b.example/", "\\\\b.example", "a b"]
)
def test_a_redirect_to_what_no_address_is_is_refused(location: str) -> None:
    with pytest.raises(MediaError):
        parse_web_address("https://a.example/").join(location)


def test_the_authority_has_a_port_only_where_it_is_not_the_schemes() -> None:
    assert parse_web_address("https://a.example:443/").authority == "a.example"
    assert parse_web_address("https://a.example:80/").authority == "a.example:80"
    assert parse_web_address("http://[2600::1]:99/").authority == "[2600::1]:99"


def test_a_path_and_a_query_are_not_shown() -> None:
    assert "secret" not in repr(parse_web_address("http://a.example/secret?token=secret"))
