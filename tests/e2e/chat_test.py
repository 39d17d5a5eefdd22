#!/usr/bin/python3
"""`quire chat` on a pseudo-terminal and on pipes, against a real server: chat_test.py BIN_DIR."""

import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import cli_test  # takes BIN_DIR

GREEDY = ['--temperature', '0']
PATIENCE = 60  # seconds: beyond it something hangs
PART_OF_ANSWER = 2048  # bytes on the wire; 1500 tokens take far more
LEFT, UP, BACKSPACE = '\x1b[D', '\x1b[A', '\x7f'
CTRL_C, CTRL_D, CTRL_Z = '\x03', '\x04', '\x1a'


class Gate:
    """Between one client and the server: lets all bytes of answers through, or some and no more."""

    def __init__(self, address):
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = f'127.0.0.1:{self.listener.getsockname()[1]}'
        self.left = float('inf')
        self.changed = threading.Condition()
        threading.Thread(target=self.serve, args=[address], daemon=True).start()

    def let_through(self, size):
        with self.changed:
            self.left = size
            self.changed.notify()

    def pay(self, size):
        with self.changed:
            self.changed.wait_for(lambda: self.left > 0)
            self.left -= size

    def serve(self, address):
        host, port = address.rsplit(':', 1)
        with self.listener, self.listener.accept()[0] as client:
            with socket.create_connection((host, int(port))) as server:
                threading.Thread(target=self.copy, args=[client, server], daemon=True).start()
                self.copy(server, client, self.pay)

    @staticmethod
    def copy(source, sink, pay=lambda size: None):
        """Until either side is closed."""
        try:
            while data := source.recv(256):
                pay(len(data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Talk:
    """A `quire chat` whose terminal is ours; `shell`: the job of a shell in that terminal."""

    def __init__(self, address, state, *flags, shell=False):
        environment = {**os.environ, 'XDG_STATE_HOME': state, 'TERM': 'xterm', 'LC_ALL': 'C'}
        line = [str(cli_test.BIN / 'quire'), '--server', address, 'chat', *flags]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0 and shell:
            os.execve('/bin/sh', ['/bin/sh', '-i'], {**environment, 'PS1': '$ ', 'ENV': ''})
        if self.pid == 0:
            os.execve(line[0], line, environment)
        self.seen = ''
        if shell:
            self.wait_for(r'\$ ')
            self.type(shlex.join(line) + '\r')

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read(self, deadline):
        """More output; False at its end."""
        if not select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f'silent after {self.seen!r}')
        try:
            self.seen += os.read(self.terminal, 65536).decode(errors='replace')
        except OSError:  # the other side is closed
            return False
        return True

    def wait_for(self, pattern):
        """Reads until the pattern has come; what was read up to its end is taken away."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.seen)
            if found:
                before, self.seen = self.seen[:found.end()], self.seen[found.end():]
                return before
            if not self.read(deadline):
                raise AssertionError(f'ended without {pattern!r}: {self.seen!r}')

    def prompt(self):
        return self.wait_for(r'> ')

    def say(self, text, answer):
        """Types a line and waits for the answer and the prompt behind it."""
        self.type(text + '\r')
        self.wait_for(answer)
        self.prompt()

    def end(self):
        """The exit code, after the last output was read."""
        deadline = time.monotonic() + PATIENCE
        while self.read(deadline):
            pass
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cli_test.Server()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.state = folder.name

    def talk(self, *flags, address=None):
        return Talk(address or self.server.address, self.state, *GREEDY, *flags)

    def piped(self, lines, *flags, state=None, command='chat'):
        environment = {**os.environ, 'XDG_STATE_HOME': state or self.state}
        return subprocess.run(
            [cli_test.BIN / 'quire', '--server', self.server.address, command, *GREEDY, *flags],
            input=lines, env=environment, capture_output=True, timeout=60, text=True, check=False)

    def test_arrow_keys_edit_the_line_and_bring_back_earlier_ones(self):
        talk = self.talk()
        talk.prompt()
        talk.say('My name is Clara.', r'Clara\.\r?\n[^>]*Clara')
        talk.say('What is my nae?' + 2 * LEFT + 'm', r'Your name is Clara\.\r?\n')
        talk.say(UP + UP + 3 * BACKSPACE + 'ra!', r'ra!\r?\n[^>]+\n')
        talk.type(CTRL_D)
        self.assertEqual(talk.end(), 0)
        history = Path(self.state, 'quire', 'chat_history')
        self.assertEqual(stat.S_IMODE(history.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(history.parent.stat().st_mode), 0o700)
        kept = history.read_text(encoding='utf-8').replace('\\040', ' ')
        self.assertIn('\nWhat is my name?\nMy name is Clara!\n', kept)
        again = self.talk()  # another process finds the lines too
        again.prompt()
        again.say(UP + UP, r'What is my name\?[^>]*\n')
        again.type('/quit\r')
        self.assertEqual(again.end(), 0)

    def test_characters_beyond_ascii_are_edited_whole(self):
        talk = self.talk('--session', 'wide')
        talk.prompt()
        talk.say('na\u00efve \u6570\u5b57' + BACKSPACE, r'\n[^>]+\n')
        talk.type(CTRL_D)
        self.assertEqual(talk.end(), 0)
        (kept,) = Path(self.state, 'quire', 'chats').iterdir()
        message = json.loads(kept.read_text(encoding='utf-8'))['chat']['messages'][0]
        self.assertEqual(message, {'role': 'user', 'content': 'na\u00efve \u6570'})

    @staticmethod
    def interrupt(talk, gate, text):
        """Presses ctrl-C when the answer has begun; the gate keeps its end from the client."""
        gate.let_through(PART_OF_ANSWER)
        talk.type(text + '\r')
        talk.wait_for(re.escape(text) + r'\r?\n[^>]*[a-z]{2,}')
        talk.type(CTRL_C)
        talk.wait_for(r'\[interrupted\]')
        gate.let_through(float('inf'))
        talk.prompt()

    def test_ctrl_c_ends_the_answer_and_not_the_talk(self):
        gate = Gate(self.server.address)
        talk = self.talk('-n', '1500', '--ignore-eos', '--session', 'stopped', address=gate.address)
        talk.prompt()
        self.interrupt(talk, gate, 'Tell me a story.')
        talk.type('/help\r')
        talk.wait_for('/quit  end the talk')
        talk.prompt()
        talk.type('dropped' + CTRL_C)
        talk.wait_for(r'dropped[^>]*> ')
        talk.type('/nothing\r')
        talk.wait_for('no command /nothing; /help lists them')
        talk.prompt()
        self.interrupt(talk, gate, 'Go on.')
        talk.type(CTRL_D)
        self.assertEqual(talk.end(), 0)
        self.server.await_true(lambda: self.server.load()['running_requests'] == 0, 'cancelled')

    def test_ctrl_z_suspends_and_fg_goes_on_with_the_line(self):
        shell = Talk(self.server.address, self.state, *GREEDY, shell=True)
        shell.prompt()
        shell.type('My name is Cla' + CTRL_Z)
        shell.wait_for(r'Stopped')
        shell.type('stty -a; echo sane; fg\r')
        modes = shell.wait_for(r'\nsane')
        self.assertRegex(modes, r'[^-]isig')
        self.assertRegex(modes, r'[^-]icanon')
        shell.wait_for(r'> My name is Cla')
        shell.say('ra.', r'Clara[^>]*\n')
        shell.say('What is my name?', r'Your name is Clara\.\r?\n')
        shell.type(CTRL_D)
        shell.wait_for(r'\$ ')
        shell.type('exit $?\r')
        self.assertEqual(shell.end(), 0)

    def test_a_session_goes_on_after_ctrl_c_came_too_late_for_the_server(self):
        gate = Gate(self.server.address)
        talk = self.talk('-n', '1500', '--ignore-eos', '--session', 'late', address=gate.address)
        talk.prompt()
        gate.let_through(PART_OF_ANSWER)
        talk.type('Tell me a story.\r')
        talk.wait_for(r'story\.\r?\n[^>]*[a-z]{2,}')
        self.server.await_true(lambda: self.position('late') > 1500, 'at the end of the answer')
        talk.type(CTRL_C)
        talk.wait_for(r'\[interrupted\]')
        gate.let_through(float('inf'))
        talk.prompt()
        self.interrupt(talk, gate, 'Go on.')
        talk.type(CTRL_D)
        self.assertEqual(talk.end(), 0)
        (kept,) = Path(self.state, 'quire', 'chats').iterdir()  # a later chat goes on from here
        expected = json.loads(kept.read_text(encoding='utf-8'))['expected_position']
        self.assertEqual(expected, self.position('late'))

    def position(self, session):
        shown = self.server.quire('session', 'get', session, '--json').stdout
        return json.loads(shown).get('position', 0) if shown else 0

    def test_a_session_goes_on_where_it_was(self):
        first = self.piped('My name is Clara.\n', '--session', 'clara')
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertRegex(first.stderr, r"^\d+ tokens? from the device.*; session 'clara' at \d+\n$")
        again = self.piped('What is my name?\n', '--session', 'clara')
        self.assertEqual(again.stdout, 'Your name is Clara.\n', again.stderr)
        self.assertRegex(again.stderr, r"^going on with session 'clara': 2 messages, \d+ tokens on "
                                       r"the server\n\d+ tokens from the device")
        folder = Path(self.state, 'quire', 'chats')
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
        for file in folder.iterdir():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        # The server lost it: the messages are sent again.
        self.assertEqual(self.server.quire('session', 'close', 'clara').returncode, 0)
        third = self.piped('What is my name?\n', '--session', 'clara', '--quiet')
        self.assertEqual((third.stdout, third.stderr), ('Your name is Clara.\n', ''))

    def test_a_chat_goes_on_with_the_session_of_generate(self):
        begun = self.piped('My name is Clara.\n', '--chat', '--session', 'begun',
                           command='generate')
        self.assertEqual(begun.returncode, 0, begun.stderr)
        again = self.piped('What is my name?\n', '--session', 'begun')
        self.assertEqual(again.stdout, 'Your name is Clara.\n', again.stderr)
        self.assertRegex(again.stderr, "^going on with session 'begun': 2 messages")

    def test_a_session_with_other_tokens_is_not_cut_away(self):
        self.assertEqual(self.piped('My name is Clara.\n', '--session', 'mine').returncode, 0)
        with tempfile.TemporaryDirectory() as elsewhere:
            other = self.piped('Hello.\n', '--session', 'mine', state=elsewhere)
        self.assertEqual(other.returncode, 1)
        self.assertRegex(other.stderr, r"session 'mine' has \d+ tokens, but no chat on this "
                                       r'machine wrote its messages; choose another name, or '
                                       r'`quire session close mine`')
        self.server.quire('generate', '--session', 'mine', '-n', '4', ' And')
        changed = self.piped('Hello.\n', '--session', 'mine')
        self.assertEqual(changed.returncode, 1)
        self.assertRegex(changed.stderr, r"session 'mine' has \d+ tokens, but \d+ after the last "
                                         r'chat on this machine')

    def test_piped_lines_remember_until_new(self):
        run = self.piped('My name is Clara.\nWhat is my name?\n\n/new\nWhat is my name?\n')
        answers = run.stdout.splitlines()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(answers[1], 'Your name is Clara.')
        self.assertNotIn('Clara', answers[2])
        self.assertEqual(run.stderr, 'a new talk begins\n')

    def test_a_failed_turn_ends_piped_lines(self):
        run = self.piped('Hello.\nHello again.\n', '--top-p', '2')
        self.assertEqual(run.returncode, 13)
        self.assertEqual(run.stderr.count('top_p'), 1)


if __name__ == '__main__':
    unittest.main()
