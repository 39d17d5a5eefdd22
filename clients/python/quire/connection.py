"""Connection: where a client connects, with which certificates, and what every call sends."""

import dataclasses
import ipaddress
import os
import re
from typing import Any, List, Optional, Sequence, Tuple

import grpc

from quire.setting_errors import SettingsError
from quire.settings import Settings

DEFAULT_PORT = 50051
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# Proxies in front of several servers choose by its hash, so that a session's calls reach the server
# that has its KV.
SESSION_HEADER = "x-quire-session"

Metadata = Tuple[Tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Connection:
    """How to open a channel, and the metadata of its calls."""

    target: str
    credentials: Optional[grpc.ChannelCredentials]
    options: Sequence[Tuple[str, Any]]
    headers: Metadata
    trace: Metadata  # of the environment

    def open(self, module: Any) -> Any:
        """A channel of `module`, which is grpc or grpc.aio."""
        if self.credentials is None:
            return module.insecure_channel(self.target, options=self.options)
        return module.secure_channel(self.target, self.credentials, options=self.options)

    def metadata(self, *, session: Optional[str] = None, traced: bool = False) -> Metadata:
        """What a call sends beside its request; `session` is the name of the session it uses."""
        added: List[Tuple[str, str]] = []
        # The server refuses other names; gRPC could not send them.
        if session and re.fullmatch("[A-Za-z0-9._:-]{1,128}", session):
            if all(name != SESSION_HEADER for name, _ in self.headers):
                added.append((SESSION_HEADER, session))
        if traced:
            added += self.trace
        return (*self.headers, *added)


def connection_of(settings: Settings, credentials: Optional[grpc.ChannelCredentials]) -> Connection:
    """The connection that settings describe; `credentials` replace their certificates."""
    options = list(UNLIMITED)
    headers = list(settings.headers.items())
    if settings.api_key is not None:
        if "authorization" in settings.headers:
            raise SettingsError("api_key and the header 'authorization' are both set")
        headers.append(("authorization", f"Bearer {settings.api_key}"))
    if credentials is None and settings.tls:
        credentials = grpc.ssl_channel_credentials(
            settings.ca_cert, settings.client_key, settings.client_cert
        )
    target = dial_address(settings.server)
    local = stays_on_this_machine(target)
    if local:  # A proxy of the environment would carry the call away, and the key with it.
        options.append(("grpc.enable_http_proxy", 0))
    if settings.server_name is not None:
        options.append(("grpc.ssl_target_name_override", settings.server_name))
    if credentials is None and not local and any(n == "authorization" for n, _ in headers):
        raise SettingsError(
            f"the key would cross the network in plaintext to {target}: set tls "
            "(QUIRE_TLS), or connect through loopback or a Unix socket"
        )
    trace = _trace_of_environment()
    return Connection(target, credentials, options, tuple(headers), trace)


def dial_address(server: str) -> str:
    """The address as gRPC dials it, which would use port 443 where none is given."""
    if server.startswith("/"):
        return f"unix:{server}"
    if server.startswith(("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:")):
        return server
    if server.startswith("["):
        return f"{server}:{DEFAULT_PORT}" if server.endswith("]") else server
    colons = server.count(":")
    if colons > 1:
        return f"[{server}]:{DEFAULT_PORT}"
    return server if colons else f"{server}:{DEFAULT_PORT}"


def stays_on_this_machine(target: str) -> bool:
    """Whether gRPC reaches a target through loopback or a Unix socket alone."""
    scheme, _, rest = target.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    if scheme in ("dns", "ipv4", "ipv6"):
        target = re.sub("^//[^/]*/", "", rest)
    return all(_is_loopback(address) for address in target.split(","))


def _is_loopback(address: str) -> bool:
    """Whether `host`, `host:port` or `[host]:port` is this machine by its loopback."""
    bracketed = re.fullmatch(r"\[(.*)\](:\w+)?", address)
    if bracketed:
        host = bracketed.group(1)
    else:
        host = address if address.count(":") > 1 else address.partition(":")[0]
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _trace_of_environment() -> Metadata:
    """The headers of W3C Trace Context that TRACEPARENT and TRACESTATE hold."""
    headers = [("traceparent", "TRACEPARENT"), ("tracestate", "TRACESTATE")]
    values = [(header, os.environ.get(name, "")) for header, name in headers]
    usable = [(header, value) for header, value in values if re.fullmatch("[ -~]{1,512}", value)]
    return tuple(usable) if usable and usable[0][0] == "traceparent" else ()
