"""Frames of HTTP/2 by hand, for peers that keep to no rule: headers of gRPC calls, data, resets."""

HEADERS, DATA, RESET, SETTINGS = 1, 0, 3, 4
BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # of every connection; then its settings
END_OF_HEADERS, END_OF_STREAM = 4, 1
INITIAL_WINDOW = 4  # a setting
CANCEL = 8  # an error code


def frame(kind, flags, stream, payload):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
            + payload)


def opening(window=None):
    """A connection's first bytes; `window` is how many bytes of a stream the server may send."""
    setting = b"" if window is None else (INITIAL_WINDOW.to_bytes(2, "big")
                                          + window.to_bytes(4, "big"))
    return BEGIN + frame(SETTINGS, 0, 0, setting)


def headers(stream, path, more=()):
    """The headers of a call; `more` are pairs of names and values, of at most 126 bytes each."""
    def literal(name, value):  # a header, uncompressed
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    words = ((b":path", path), (b":authority", b"x"), (b"content-type", b"application/grpc"),
             (b"te", b"trailers"), *more)
    block = b"\x83\x86" + b"".join(literal(name, value) for name, value in words)  # POST, http
    return frame(HEADERS, END_OF_HEADERS, stream, block)


def message(data):
    """A message of gRPC, uncompressed."""
    return b"\0" + len(data).to_bytes(4, "big") + data


def reset(stream):
    return frame(RESET, 0, stream, CANCEL.to_bytes(4, "big"))
