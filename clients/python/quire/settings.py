"""Settings of a connection, each from an argument, else the environment, else a profile."""

import dataclasses
import os
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from quire.profiles import read_profile
from quire.setting_errors import SettingsError

DEFAULT_SERVER = "127.0.0.1:50051"
BOOLEANS = {"1": True, "true": True, "yes": True, "on": True,
            "0": False, "false": False, "no": False, "off": False}  # fmt: skip
VARIABLES = {
    name: f"QUIRE_{name.upper()}"
    for name in ("server", "tls", "ca_cert", "client_cert", "client_key", "server_name", "api_key",
                 "api_key_file", "headers")
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings:
    """A server, and how to speak to it. Certificates and keys are the contents of their files."""

    server: str = DEFAULT_SERVER
    tls: bool = False
    ca_cert: Optional[bytes] = None
    client_cert: Optional[bytes] = None
    client_key: Optional[bytes] = dataclasses.field(default=None, repr=False)
    server_name: Optional[str] = None
    api_key: Optional[str] = dataclasses.field(default=None, repr=False)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True)
class Source:
    """Values from one place, and the name of each value in it, for errors."""

    values: Mapping[str, Any]
    label: Callable[[str], str]


def resolve(profile: Optional[str], arguments: Mapping[str, Any]) -> Settings:
    """The settings of a connection; arguments that are None are not given.

    Raises SettingsError, which names the place of the wrong value.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    name = profile or os.environ.get("QUIRE_PROFILE") or None
    values, label = read_profile(name)
    sources = [Source(given, str), _environment()]
    named = _first(sources, "server")
    # The key of a server that was not asked for is not for the one that was.
    if name or not named or values.get("server", named[1]) == named[1]:
        sources.append(Source(values, label))
    for source in sources:
        _check_types(source)
    tls = _tls(sources)
    found: Dict[str, Any] = {"tls": tls, "headers": _headers(sources), "api_key": _key(sources)}
    found["server"] = (_first(sources, "server") or ("", DEFAULT_SERVER))[1]
    if tls:
        _add_certificates(sources, found)
    elif "tls" not in given and _first(sources, "server_name"):
        where = _first(sources, "server_name")[0]
        raise SettingsError(f"{where} is set, but the connection does not use TLS: set tls too")
    return Settings(**found)


def _first(sources: List[Source], name: str) -> Optional[Tuple[str, Any]]:
    """The name and the value of a setting in the first place that has it."""
    for source in sources:
        if name in source.values:
            return source.label(name), source.values[name]
    return None


def _environment() -> Source:
    """The settings of the environment; an empty variable counts as not set."""
    values: Dict[str, Any] = {}
    for name, variable in VARIABLES.items():
        text = os.environ.get(variable, "")
        if text:
            values[name] = text
    if "tls" in values:
        on = BOOLEANS.get(values["tls"].lower())
        if on is None:
            raise SettingsError(f"QUIRE_TLS: true or false, not {values['tls']!r}")
        values["tls"] = on
    if "headers" in values:
        values["headers"] = _header_lines(values["headers"])
    return Source(values, lambda name: VARIABLES[name])


def _header_lines(text: str) -> Dict[str, str]:
    """Headers written as lines of `name: value`."""
    headers: Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name = name.strip()
        if not colon:
            raise SettingsError(f"QUIRE_HEADERS: line {number} is not `name: value`")
        if name.lower() in (known.lower() for known in headers):
            raise SettingsError(f"QUIRE_HEADERS: line {number} has the header {name!r} again")
        headers[name] = value.strip()
    return headers


def _check_types(source: Source) -> None:
    for name, value in source.values.items():
        where = source.label(name)
        if name == "tls":
            if not isinstance(value, bool):
                raise SettingsError(f"{where}: true or false, not {value!r}")
        elif name == "headers":
            texts = isinstance(value, Mapping) and [*value.keys(), *value.values()]
            if texts is False or not all(isinstance(text, str) for text in texts):
                raise SettingsError(f"{where}: names and texts of headers")
        elif name in ("ca_cert", "client_cert", "client_key", "api_key_file"):
            if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
                raise SettingsError(f"{where}: the path of a file")
        elif not isinstance(value, str) or not value:
            raise SettingsError(f"{where}: a text that is not empty")


def _tls(sources: List[Source]) -> bool:
    """Whether to use TLS: as the first place says that has an opinion; a certificate is one."""
    for source in sources:
        certificate = next((n for n in ("ca_cert", "client_cert") if n in source.values), None)
        if "tls" in source.values:
            if certificate and not source.values["tls"]:
                raise SettingsError(
                    f"{source.label('tls')} is false, but {source.label(certificate)} is set"
                )
            return bool(source.values["tls"])
        if certificate:
            return True
    return False


def _read(where: str, path: Any) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SettingsError(f"{where}: cannot read {path}: {error.strerror}") from None


def _add_certificates(sources: List[Source], found: Dict[str, Any]) -> None:
    """Reads the certificates, and checks that a certificate of the client has its key."""
    for name, kind in (
        ("ca_cert", b"CERTIFICATE"), ("client_cert", b"CERTIFICATE"), ("client_key", b"PRIVATE KEY")
    ):  # fmt: skip
        place = _first(sources, name)
        if place is None:
            continue
        where, path = place
        found[name] = _read(where, path)
        if not re.search(rb"-----BEGIN [A-Z ]*" + kind + rb"-----", found[name]):
            raise SettingsError(f"{where}: {path} has no {kind.decode()} in PEM format")
    for name, other in (("client_cert", "client_key"), ("client_key", "client_cert")):
        if name in found and other not in found:
            raise SettingsError(f"{_first(sources, name)[0]} is set, but {other} is not")
    place = _first(sources, "server_name")
    if place is not None:
        found["server_name"] = place[1]


def _key(sources: List[Source]) -> Optional[str]:
    """The key of the first place that has one, or a file with one. Errors never show it."""
    for source in sources:
        if "api_key" in source.values and "api_key_file" in source.values:
            raise SettingsError(
                f"{source.label('api_key')} and {source.label('api_key_file')} are both set"
            )
        if "api_key" in source.values:
            return _checked_key(source.label("api_key"), source.values["api_key"])
        if "api_key_file" in source.values:
            where, path = source.label("api_key_file"), source.values["api_key_file"]
            content = _read(where, path).decode("latin-1").strip()
            return _checked_key(f"{where}: {path}", content)
    return None


def _checked_key(where: str, key: str) -> str:
    if not re.fullmatch("[!-~]{1,4096}", key):
        raise SettingsError(f"{where}: a key is 1 to 4096 ASCII characters without spaces")
    return key


def _headers(sources: List[Source]) -> Dict[str, str]:
    """The headers of all places, by name in lower case; an earlier place replaces a later one's."""
    headers: Dict[str, str] = {}
    for source in reversed(sources):
        seen = set()
        for given, value in source.values.get("headers", {}).items():
            name, where = given.lower(), source.label("headers")
            if not re.fullmatch("[a-z0-9_.-]+", name):
                raise SettingsError(f"{where}: {given!r} is not the name of a header")
            if name.startswith("grpc-") or name.endswith("-bin"):
                raise SettingsError(f"{where}: the header {given!r} belongs to gRPC")
            if name in seen:
                raise SettingsError(f"{where}: the header {given!r} is there twice")
            if not re.fullmatch("[ -~]*", value):
                raise SettingsError(f"{where}: the header {given!r} is not printable ASCII")
            seen.add(name)
            headers[name] = value
    return headers
