#!/usr/bin/python3
"""The `quire` command against a real quire-server and its bundled model: cli_test.py BIN_DIR."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else Path('build/release/bin')
LONG = ['--ignore-eos', '--max-tokens', '1500']  # seconds of work, ended long before


class Server:
    """A quire-server that is ready, and gone after stop()."""

    def __init__(self, *flags, uds=None):
        listen = ['--uds', uds] if uds else ['--port', '0']
        self.log = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen(
            [BIN / 'quire-server', *listen, '--metrics-port', '0', *flags], stdout=self.log,
            stderr=self.log)
        self.await_true(self.ready, 'ready')
        self.address = f'unix:{uds}' if uds else self.ready().group(1)

    def read_log(self):
        return Path(self.log.name).read_text(encoding='utf-8')

    def ready(self):
        return re.search(r'READY address=(\S+)', self.read_log())

    def await_true(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f'not {what}; exit code {self.process.poll()}; log:\n'
                                     + self.read_log())
            time.sleep(0.02)

    def quire(self, *args, stdin=b''):
        return subprocess.run([BIN / 'quire', '--server', self.address, *args], input=stdin,
                              capture_output=True, timeout=60, check=False)

    def start(self, *args):
        return subprocess.Popen([BIN / 'quire', '--server', self.address, *args],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def load(self):
        return json.loads(self.quire('info', '--json').stdout)['load']

    def idle(self):
        load = self.load()
        return load['running_requests'] == 0 and load['free_blocks'] == load['total_blocks']

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def tearDown(self):
        self.server.await_true(self.server.idle, 'all blocks free again')

    def run_ok(self, *args, stdin=b''):
        run = self.server.quire(*args, stdin=stdin)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run.stdout.decode()

    def frames(self, *args):
        return [json.loads(line) for line in self.run_ok('generate', '--json', *args).splitlines()]

    def assert_fails(self, code, words, *args, stdin=b''):
        run = self.server.quire(*args, stdin=stdin)
        self.assertEqual(run.returncode, code, run.stderr.decode())
        self.assertIn(words, run.stderr.decode())

    def test_a_stream_is_accepted_then_tokens_then_finished(self):
        frames = self.frames('--seed', '7', '--max-tokens', '20', '--ignore-eos', 'Once')
        self.assertIn('accepted', frames[0])
        self.assertEqual(frames[0]['accepted']['sampling']['seed'], '7')
        self.assertIn('finished', frames[-1])
        ids = [i for f in frames[1:-1] for i in f['tokens'].get('token_ids', [])]
        self.assertEqual(len(ids), 20)
        self.assertEqual(frames[-2]['tokens']['cumulative_tokens'], 20)
        self.assertEqual(frames[-1]['finished']['reason'], 'FINISH_REASON_MAX_TOKENS')
        self.assertEqual(frames[-1]['finished']['usage']['completion_tokens'], 20)

    def test_all_ways_of_printing_say_the_same(self):
        flags = ['--seed', '3', '--max-tokens', '40', '--ignore-eos', 'Once upon a time']
        frames = self.frames(*flags)
        text = ''.join(f['tokens'].get('text', '') for f in frames if 'tokens' in f)
        ids = [i for f in frames if 'tokens' in f for i in f['tokens'].get('token_ids', [])]
        self.assertEqual(self.run_ok('generate', *flags).rstrip('\n'), text.rstrip('\n'))
        self.assertEqual(self.run_ok('generate', '--no-stream', *flags).rstrip('\n'),
                         text.rstrip('\n'))
        ids = [str(i) for i in ids]
        self.assertEqual(self.run_ok('generate', '--print-ids', *flags).split(), ids)
        self.assertEqual(self.run_ok('detokenize', *ids)[:-1], text)

    def test_text_chat_and_ids_are_the_same_prompt(self):
        flags = ['--temperature', '0', '--max-tokens', '12']
        ids = self.run_ok('tokenize', 'Once upon a time').split()
        self.assertEqual(self.run_ok('generate', *flags, '--token-ids', ','.join(ids)),
                         self.run_ok('generate', *flags, 'Once upon a time'))
        ids = self.run_ok('tokenize', '--chat', 'Tell me a story.').split()
        self.assertEqual(self.run_ok('generate', *flags, '--token-ids', ','.join(ids)),
                         self.run_ok('generate', *flags, '--chat', stdin=b'Tell me a story.\n'))

    def test_tokenize_round_trips(self):
        text = 'A naïve café, 数 and 🦊!'
        ids = self.run_ok('tokenize', '--no-special-tokens', text).split()
        self.assertEqual(self.run_ok('detokenize', stdin=' '.join(ids).encode()), text + '\n')
        offsets = self.run_ok('tokenize', '--no-special-tokens', '--offsets', 'Once upon')
        rows = [[int(x) for x in line.split()] for line in offsets.splitlines()]
        self.assertEqual(rows[0][1], 0)
        self.assertEqual(rows[-1][2], len('Once upon'))

    def test_stop_strings_end_the_text_and_never_leak(self):
        flags = ['--temperature', '0', '--max-tokens', '60', 'Once upon a time']
        whole = self.run_ok('generate', *flags)
        words = whole.split()
        stop = ' ' + words[len(words) // 2]
        cut = self.run_ok('generate', '--stop', stop, *flags)
        self.assertEqual(cut.rstrip('\n'), whole[:whole.index(stop)].rstrip('\n'))

    def test_stats_and_info_are_readable(self):
        # Enough tokens for more than one frame, or there is no time between them.
        run = self.server.quire(
            'generate', '--stats', '--max-tokens', '500', '--ignore-eos', 'Once')
        for words in ('prompt tokens:', 'time to first token:', 'tokens per second:'):
            self.assertIn(words, run.stderr.decode())
        info = self.run_ok('info')
        for words in ('ready', 'model', 'kv', 'memory', 'weights'):
            self.assertIn(words, info)

    def test_refusals_have_their_code_and_name_the_field(self):
        self.assert_fails(13, 'yields no token', 'generate', '--no-special-tokens', '')
        self.assert_fails(13, 'top_p', 'generate', '--top-p', '2', 'x')
        self.assert_fails(13, 'temperature', 'generate', '--temperature', 'nan', 'x')
        self.assert_fails(13, 'token_ids', 'generate', '--token-ids', '4000000000')
        self.assert_fails(13, 'UTF-8', 'generate', stdin=b'a\xffb')
        self.assert_fails(13, 'max_tokens', 'generate', '--max-tokens', '100000000', 'x')
        self.assert_fails(15, 'NOT_FOUND', 'generate', '--model', 'another', 'x')
        self.assert_fails(14, 'DEADLINE_EXCEEDED', 'generate', '--timeout', '0.2', *LONG, 'x')

    def running(self, *args):
        """A generation that has begun to print."""
        process = self.server.start('generate', *LONG, *args, 'Once upon a time')
        self.assertTrue(process.stdout.read(1))
        return process

    def test_ctrl_c_cancels_the_request(self):
        process = self.running()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b'interrupted', errors)

    def test_abort_ends_a_request_by_its_name(self):
        process = self.running('--request-id', 'long-one')
        self.assert_fails(16, 'ALREADY_EXISTS', 'generate', '--request-id', 'long-one', 'x')
        self.assertEqual(self.run_ok('abort', 'long-one', 'no-such'), 'aborted 1\n')
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 11, errors)

    def test_a_reader_that_goes_away_frees_its_blocks(self):
        process = self.running()
        process.kill()
        process.communicate()


class DrainTest(unittest.TestCase):
    def test_drain_lets_the_running_finish_then_the_server_exits(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(uds=f'{folder}/quire.sock')
            try:
                running = server.start('generate', '--ignore-eos', '--max-tokens', '200', '--json',
                                       'Once')
                self.assertIn(b'accepted', running.stdout.readline())
                drained = server.quire('drain', '--exit-when-idle')
                self.assertRegex(drained.stdout.decode(), r'^draining: [01] running, 0 waiting\n$')
                refused = server.quire('generate', 'x')
                self.assertEqual(refused.returncode, 24, refused.stderr)
                output, errors = running.communicate(timeout=60)
                self.assertEqual(running.returncode, 0, errors)
                self.assertTrue(re.search(rb'"completion_tokens":200\b', output))
                self.assertEqual(server.process.wait(timeout=30), 0)
            finally:
                server.stop()


if __name__ == '__main__':
    unittest.main()
