"""Conversations whose turns are known, and what their clients believe of each session.

A session is always some turns of its plot, from the first on, so that a number says what it holds.
`allowed` are the numbers that may be found: the last is the one that its client was told, and those
before it are what a server that is killed may come back with. A turn that was told is saved, so it
leaves one number only, unless the disk failed (docs/sessions.md, "Surviving the server").
"""

import dataclasses
import random
import struct
import threading

from answers import PATIENCE, Told, read
from conversation import WORDS, spoken
from quire import SessionState, messages
from quire.errors import NotFound
from quire.types import Options

SAMPLING = Options(temperature=0.8, top_p=0.95, max_tokens=30, skip_special_tokens=False)
TURNS = len(WORDS)


class Plot:
    """A whole conversation, from a server on which nothing else happened."""

    def __init__(self, client, seed):
        self.seed, self.answers, self.positions, self.tokens = seed, [], [0], []
        for turn in range(TURNS):
            said = client.tokenize(spoken(turn), add_special_tokens=turn == 0)
            self.tokens += [token.id for token in said]
            # Of a request that knows of no session, and of no cache.
            done = client.generate_text(self.tokens, SAMPLING, seed=seed + turn,
                                        bypass_prefix_cache=True)
            self.answers.append((list(done.token_ids), done.finished.reason.value))
            self.tokens += list(done.token_ids)
            self.positions.append(len(self.tokens))

    def request(self, name, turn):
        return messages.generate_request(spoken(turn), dataclasses.replace(
            SAMPLING, seed=self.seed + turn, session_id=name, create_session=turn == 0,
            expected_position=self.positions[turn]))


def tokens_of(file):
    """The tokens in the bytes of an exported session (docs/session-format.md)."""
    size, = struct.unpack_from("<I", file, 12)
    count, = struct.unpack_from("<I", file, 16 + size - 8)
    return list(struct.unpack_from(f"<{count}I", file, 16 + size + 8))


@dataclasses.dataclass
class Session:
    """A session as its client knows it; no turns: there is none of that name."""

    name: str
    allowed: list = dataclasses.field(default_factory=lambda: [0])
    maybe: list = dataclasses.field(default_factory=list)  # of calls whose end was not told
    life: object = None  # the server of the last call

    @property
    def turns(self):
        return self.allowed[-1]


class Talker(threading.Thread):
    """The only user of a few sessions: turns, forks, cuts, files, and what is found after faults.

    `world` has the servers, the judge and what ends the run.
    """

    def __init__(self, world, line, plot, name, seed):
        super().__init__(daemon=True, name=f"talk {name}")
        self.world, self.line, self.plot = world, line, plot
        self.chance = random.Random(seed)
        self.sessions = [Session(f"{name}-{i}") for i in range(3)]
        self.done = 0  # turns that were told

    def run(self):
        with self.world.judge.watching(self.name):
            while not self.world.stopped.is_set():
                if self.world.servers.up.wait(1):
                    self.step(self.chance.choice(self.sessions))

    def step(self, session):
        life = self.world.servers.life
        if session.maybe or session.life is not life:
            if not self.find(session, life):
                return
        operation = self.choose(session)
        with self.world.judge.call(f"{operation.__name__} {session.name}") as call:
            operation(session, call)

    def choose(self, session):
        if session.turns == 0:
            return self.chance.choice((self.turn, self.turn, self.copy))
        more = [self.cut, self.fork, self.export, self.move, self.move, self.close]
        turns = [self.turn] * (8 if session.turns < TURNS else 0)
        return self.chance.choice(more + turns)

    def find(self, session, life):
        """Looks where a session is, and whether it may be there; False if there is no answer."""
        with self.world.judge.call(f"find {session.name}"):
            found = self.position(session.name)
            if found not in self.plot.positions:
                self.world.judge.fault(f"{session.name} is at {found}, where no turn ends")
                found = 0
            turns = self.plot.positions.index(found)
            same = session.life is life
            may = {session.turns, *session.maybe} | (set() if same else set(session.allowed))
            if turns not in may:
                what = f"{session.name} has {turns} turns, not one of {sorted(may)}"
                if same or turns > max(may):
                    self.world.judge.fault(what)
                else:
                    self.world.servers.lives[life.number - 1].lost.append(what)
            session.allowed = [*session.allowed, turns] if same else [turns]
            session.maybe, session.life = [], life
            return True
        return False

    def position(self, name):
        """The tokens of a session at rest; 0 if there is none."""
        while True:
            try:
                found = self.line.sessions.get(name)
            except NotFound:
                return 0
            if found.state != SessionState.ACTIVE:
                return found.position
            self.world.stopped.wait(0.02)  # the server ends a turn that its caller left

    def changed(self, session, turns, saved=False):
        """The server said that a session has so many turns now."""
        sure = saved and not session.life.disk_failed
        session.allowed = [turns] if sure else [*session.allowed, turns]
        session.maybe = []

    def turn(self, session, call, hasty=True):
        if session.turns == TURNS:
            self.line.sessions.truncate(session.name, self.plot.positions[2])
            self.changed(session, 2)
        turn, told = session.turns, Told()
        session.maybe = [turn + 1]
        way = self.chance.random() if hasty else 1
        call.cancelled, call.hasty = way < 0.1, 0.1 <= way < 0.2
        rpc = self.line.inference.Generate(
            self.plot.request(session.name, turn), metadata=self.line.headers,
            timeout=self.chance.uniform(0.01, 0.3) if call.hasty else PATIENCE)
        try:
            read(rpc, told, self.chance.randint(1, 20) if call.cancelled else None)
        finally:
            tokens, end = self.plot.answers[turn]
            got = told.tokens.get(0, [])
            whole = not told.ends or (got, told.ends) == (tokens, {0: end})
            if got != tokens[:len(got)] or not whole:
                self.world.judge.fault(f"turn {turn} of {session.name}: {got} {told.ends}, not "
                                       f"{tokens} {end}")
        if told.finished.position != self.plot.positions[turn + 1]:
            self.world.judge.fault(f"turn {turn} of {session.name} ended at "
                                   f"{told.finished.position}")
        self.done += 1
        self.changed(session, turn + 1, saved=True)

    def cut(self, session, call):
        turns = self.chance.randint(1, session.turns)
        session.maybe = [turns]
        self.line.sessions.truncate(session.name, self.plot.positions[turns])
        self.changed(session, turns)

    def close(self, session, call):
        session.maybe = [0]
        self.line.sessions.close(session.name)
        self.changed(session, 0)

    def fork(self, session, call):
        """Makes an absent session the beginning of this one."""
        absent = [each for each in self.sessions
                  if each.turns == 0 and not each.maybe and each.life is session.life]
        if not absent:
            return
        turns = self.chance.randint(1, session.turns)
        absent[0].maybe = [turns]
        self.line.sessions.fork(session.name, absent[0].name,
                                position=self.plot.positions[turns])
        self.changed(absent[0], turns)

    def export(self, session, call):
        self.read_file(session)

    def read_file(self, session):
        file = b"".join(self.line.sessions.export(session.name))
        expected = self.plot.tokens[:self.plot.positions[session.turns]]
        if tokens_of(file) != expected:
            self.world.judge.fault(f"the file of {session.name} has other tokens than its turns")
        return file

    def copy(self, session, call):
        """Makes an absent session of another one's file."""
        others = [each for each in self.sessions
                  if each.turns > 0 and not each.maybe and each.life is session.life]
        if others:
            file, turns = self.read_file(others[0]), others[0].turns
            session.maybe = [turns]
            self.line.sessions.import_(file, session.name)
            self.changed(session, turns)

    def move(self, session, call):
        """Moves the KV, which changes no turn."""
        name = self.chance.choice(("offload", "prefetch", "touch", "pin", "unpin"))
        getattr(self.line.sessions, name)(session.name)

    def finish(self):
        """Finds each session where it may be, and takes a turn of each. Faults are off."""
        for session in self.sessions:
            if not self.find(session, self.world.servers.life):
                self.world.judge.fault(f"{session.name} cannot be found")
                continue
            with self.world.judge.call(f"last turn {session.name}") as call:
                self.turn(session, call, hasty=False)
            with self.world.judge.call(f"close {session.name}") as call:
                self.close(session, call)
