"""A TCP proxy in front of a server's socket, which makes the network slow, cuts it or lets it die.

Programs connect to `target`. The manners hold for every byte that is passed from then on, of old
connections and of new ones, and may be changed at any time by any thread.
"""

import asyncio
import dataclasses
import socket
import threading


@dataclasses.dataclass(frozen=True)
class Manners:
    """How one direction passes bytes."""

    piece: int = 1 << 16  # bytes that are passed at once
    delay: float = 0.0  # seconds before each piece
    cut_after: int = -1  # bytes of a connection, after which it is reset; < 0: never
    frozen: bool = False  # nothing is passed or read, and no connection ends: a dead peer


class FaultProxy:
    """Passes connections on to the Unix socket at `path` until the end of its `with` block."""

    def __init__(self, path):
        self._path = path
        self.to_server = self.to_client = Manners()
        self.connections = 0  # made so far
        self.cuts = 0
        self._writers = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self.target = f"127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def reset_all(self):
        """Resets all connections at once."""
        self._call(self._reset(set(self._writers)))

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _stop(self):
        self._server.close()
        await self._reset(set(self._writers))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _reset(self, writers):
        for writer in writers:
            writer.transport.abort()

    async def _serve(self, reader, writer):
        self.connections += 1
        # Short buffers: a reader that is slow is felt at the other end.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        try:
            to_reader, to_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, to_writer}
        self._writers |= pair
        try:
            await asyncio.gather(
                self._pass(reader, to_writer, lambda: self.to_server),
                self._pass(to_reader, writer, lambda: self.to_client),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            await self._reset(pair)
            self._writers -= pair

    async def _pass(self, reader, writer, manners):
        passed = 0
        while True:
            now = manners()
            if now.frozen:
                await asyncio.sleep(0.005)
                continue
            piece = await reader.read(now.piece)
            if not piece:
                raise ConnectionResetError
            while manners().frozen:
                await asyncio.sleep(0.005)
            if now.delay > 0:
                await asyncio.sleep(now.delay)
            if 0 <= now.cut_after < passed + len(piece):
                writer.write(piece[: now.cut_after - passed])
                await writer.drain()
                self.cuts += 1
                raise ConnectionResetError
            writer.write(piece)
            await writer.drain()
            passed += len(piece)
