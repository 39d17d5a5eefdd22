#!/usr/bin/python3
"""The `quire` command against a real quire-server and its bundled model: cli_test.py BIN_DIR."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else Path('build/release/bin')
STATE = tempfile.TemporaryDirectory()  # not in the home of the caller
os.environ['XDG_STATE_HOME'] = STATE.name
LONG = ['--ignore-eos', '--max-tokens', '1500']  # seconds of work; every test ends it earlier


class Server:
    """A ready quire-server; stop() ends it."""

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

    def test_all_output_formats_have_the_same_tokens(self):
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
        # Enough tokens for two frames, so that there is a time between them.
        run = self.server.quire(
            'generate', '--stats', '--max-tokens', '500', '--ignore-eos', 'Once')
        for words in ('prompt tokens:', 'time to first token:', 'tokens per second:'):
            self.assertIn(words, run.stderr.decode())
        info = self.run_ok('info')
        for words in ('ready', 'model', 'kv', 'memory', 'weights'):
            self.assertIn(words, info)

    def test_memory_names_the_owners_of_all_blocks(self):
        memory = json.loads(self.run_ok('memory', '--json'))
        total = self.server.load()['total_blocks']
        self.assertEqual([tier['name'] for tier in memory['tiers']], ['device', 'host'])
        self.assertEqual(int(memory['tiers'][0]['total_blocks']), total)
        self.assertEqual(sum(int(owner['blocks']) for owner in memory['tiers'][0]['owners']), total)
        self.assertIn(f'device   {total} blocks of 16 tokens', self.run_ok('memory'))

    def test_flush_empties_the_prefix_cache(self):
        prompt = ','.join(str(i) for i in range(900, 940))  # that no other test sends
        cached = lambda: self.frames('--token-ids', prompt, '--max-tokens', '1')[-1][
            'finished']['usage'].get('cached_tokens', 0)
        cached()
        self.assertEqual(cached(), 32)
        self.assertRegex(self.run_ok('flush'),
                         r'^freed    \d+ blocks, \d+ pages of host memory\n'
                         r'kept     \d+ blocks, \d+ pages: in use, or of sessions\n$')
        self.assertEqual(cached(), 0)
        self.assertGreaterEqual(int(json.loads(self.run_ok('flush', '--json'))['blocks']), 2)

    def test_memory_is_watched_until_ctrl_c(self):
        watch = self.server.start('memory', '--watch')
        lines = [watch.stdout.readline().decode() for _ in range(3)]
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(timeout=60), 130)
        watch.stdout.close()
        watch.stderr.close()
        self.assertIn('running', lines[0])
        for line in lines[1:]:
            self.assertRegex(line, r'^\d\d:\d\d:\d\d +\d+ ')

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
        """A generation that has printed its first text."""
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
        self.assertEqual(self.run_ok('abort', 'long-one', 'no-such'), 'aborted 1, remembered 1\n')
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 11, errors)

    def test_a_closed_reader_frees_its_blocks(self):
        process = self.running()
        process.kill()
        process.communicate()


class SessionTest(unittest.TestCase):
    """Conversations with host memory, which takes KV without an idle time."""

    @classmethod
    def setUpClass(cls):
        flags = ['--kv-offloading-size', '64MiB', '--session-idle-offload-after', '3600']
        cls.server, cls.other = Server(*flags), Server(*flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0 and cls.other.stop() == 0

    def run_ok(self, *args, stdin=b'', server=None):
        run = (server or self.server).quire(*args, stdin=stdin)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        return run

    def session(self, verb, *args, server=None):
        return json.loads(self.run_ok('session', verb, *args, '--json', server=server).stdout)

    def turn(self, name, *prompt, server=None):
        """The ids of a greedy answer of 40 tokens, and its Finished."""
        flags = ['--session', name, '--temperature', '0', '--ignore-eos', '-n', '40', '--json']
        lines = self.run_ok('generate', *flags, *prompt, server=server).stdout.splitlines()
        frames = [json.loads(line) for line in lines]
        ids = [i for f in frames if 'tokens' in f for i in f['tokens'].get('token_ids', [])]
        return ids, frames[-1]['finished']

    def await_state(self, name, *states):
        self.server.await_true(lambda: self.session('get', name)['state'].removeprefix(
            'SESSION_STATE_').lower() in states, f'{name} in one of {states}')

    def test_turns_continue_one_prompt(self):
        prompts = ['Once upon a time', ' One day', ' Then']
        known = []
        for i, prompt in enumerate(prompts):
            bare = [] if i == 0 else ['--no-special-tokens']
            words = self.run_ok('tokenize', *bare, prompt).stdout.split()
            known += [int(word) for word in words]
            ids, finished = self.turn('one-prompt', prompt)
            alone = self.run_ok('generate', '--no-prefix-cache', '--print-ids', '--temperature',
                                '0', '--ignore-eos', '-n', '40', '--token-ids',
                                ','.join(map(str, known))).stdout.split()
            self.assertEqual(ids, [int(word) for word in alone])
            known += ids
            self.assertEqual(finished['position'], len(known))
            self.assertEqual(finished['usage']['prompt_tokens'], len(known) - 40)
        self.assertEqual(self.session('get', 'one-prompt')['turns'], '3')

    def test_kv_restored_from_the_host_gives_the_same_tokens(self):
        prompts = ['Once upon a time there was a fox', ' One day', ' Then']
        for prompt in prompts:
            self.turn('kept', prompt, server=self.other)  # this server would keep the blocks too
            _, finished = self.turn('moved', prompt)
            self.session('offload', 'moved')
            self.await_state('moved', 'host')
        self.assertGreater(finished['residency']['host_tokens'], 0)
        self.assertEqual(finished['residency'].get('recomputed_tokens', 0), 0)
        self.assertIn('restore_seconds', finished['residency'])
        self.session('prefetch', 'moved')
        self.await_state('moved', 'resident_idle', 'restoring')
        kept, moved = self.turn('kept', ' So', server=self.other), self.turn('moved', ' So')
        self.assertEqual(kept[0], moved[0])

    def test_forks_and_truncated_sessions_share_their_prefix(self):
        self.turn('trunk', 'Once upon a time')
        position = self.session('get', 'trunk')['position']
        branch = self.session('fork', 'trunk', 'branch')
        self.assertEqual((branch['session_id'], branch['position']), ('branch', position))
        self.assertEqual(self.turn('trunk', ' One day')[0], self.turn('branch', ' One day')[0])
        self.session('truncate', 'branch', str(position))
        self.assertEqual(self.session('get', 'branch')['position'], position)
        self.session('fork', 'trunk', 'stub', '--position', '3')
        table = self.run_ok('session', 'list').stdout.decode()
        for name in ('trunk', 'branch', 'stub'):
            self.assertRegex(table, rf'(?m)^{name} ')
        self.run_ok('session', 'close', 'stub')
        self.assertEqual(self.server.quire('session', 'get', 'stub').returncode, 15)

    def test_an_exported_session_continues_on_another_server(self):
        self.turn('traveller', 'Once upon a time there was a fox who went far')
        with tempfile.TemporaryDirectory() as folder:
            self.run_ok('session', 'export', 'traveller', f'{folder}/file')
            there = self.session('import', f'{folder}/file', 'arrived', server=self.other)
            Path(folder, 'cut').write_bytes(Path(folder, 'file').read_bytes()[:-5])
            cut = self.other.quire('session', 'import', f'{folder}/cut')
        self.assertEqual(there['position'], self.session('get', 'traveller')['position'])
        here, away = (self.turn(name, ' One day', server=server)[0] for name, server in
                      (('traveller', self.server), ('arrived', self.other)))
        self.assertEqual(here, away)
        self.assertEqual(cut.returncode, 13, cut.stderr)

    def test_lines_are_turns_and_a_chat_remembers(self):
        run = self.run_ok('generate', '--session', 'clara', '--chat', '--temperature', '0',
                          stdin=b'My name is Clara.\nWhat is my name?\n')
        self.assertIn('Your name is Clara.', run.stdout.decode().splitlines()[-1])
        said = run.stderr.decode().splitlines()
        self.assertEqual(len(said), 2)
        self.assertRegex(said[1], r"^\d+ tokens from the device, 0 from the host, \d+ computed "
                                  r"again; session 'clara' at \d+$")
        again = self.server.quire('generate', '--session', 'clara', '--chat', 'And now?')
        self.assertEqual(again.returncode, 19, again.stderr)

    def test_refusals_name_the_true_position(self):
        self.turn('strict', 'Once')
        position = self.session('get', 'strict')['position']
        drifted = self.server.quire('generate', '--session', 'strict', '--expected-position', '3',
                                    'x')
        self.assertEqual(drifted.returncode, 19)
        self.assertIn(str(position), drifted.stderr.decode())
        beyond = self.server.quire('session', 'truncate', 'strict', str(position + 1))
        self.assertEqual(beyond.returncode, 13, beyond.stderr)
        self.assertEqual(self.server.quire('session', 'create', 'strict').returncode, 16)
        self.assertEqual(self.session('get', 'strict')['position'], position)

    def test_watch_ends_when_the_session_is_closed(self):
        self.turn('watched', 'Once')
        watch = self.server.start('session', 'watch', 'watched')
        self.assertIn(b'NAME', watch.stdout.readline())
        self.run_ok('session', 'close', 'watched')
        rows, errors = watch.communicate(timeout=30)
        self.assertEqual(watch.returncode, 0, errors)
        self.assertIn(' closed ', rows.decode().splitlines()[-1])

    def test_load_in_sessions_completes(self):
        load = subprocess.run(
            [BIN / 'quire-load', '--server', self.server.address, '--sessions', 'on', '--quiet',
             '--turns', '3', '--num-prompts', '6', '--max-concurrency', '3', '--ignore-eos',
             '--random-input-len', '40:90', '--turn-input-len', '20', '--random-output-len', '10',
             '--fork-probability', '0.5'], capture_output=True, timeout=120, check=False)
        # On a busy machine the client may be late, which this test ignores.
        self.assertRegex(load.stdout.decode(), r'Failed requests: +0 ')
        self.assertNotIn('repeated', load.stdout.decode())
        self.assertIn('in sessions', load.stdout.decode())
        self.assertNotIn('load-', self.run_ok('session', 'list').stdout.decode())


class DrainTest(unittest.TestCase):
    def test_drain_finishes_running_requests_then_the_server_exits(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(uds=f'{folder}/quire.sock')
            try:
                running = server.start('generate', '--ignore-eos', '--max-tokens', '200', '--json',
                                       'Once')
                self.assertIn(b'accepted', running.stdout.readline())
                healthy = server.quire('health')
                self.assertEqual((healthy.stdout, healthy.returncode), (b'SERVING\n', 0))
                drained = server.quire('drain', '--exit-when-idle')
                self.assertRegex(drained.stdout.decode(), r'^draining: [01] running, 0 waiting\n$')
                draining = server.quire('health')
                self.assertEqual((draining.stdout, draining.returncode), (b'NOT_SERVING\n', 1))
                refused = server.quire('generate', 'x')
                self.assertEqual(refused.returncode, 24, refused.stderr)
                output, errors = running.communicate(timeout=60)
                self.assertEqual(running.returncode, 0, errors)
                self.assertTrue(re.search(rb'"completion_tokens":200\b', output))
                self.assertEqual(server.process.wait(timeout=30), 0)
                self.assertEqual(server.quire('health').returncode, 24)
            finally:
                server.stop()


if __name__ == '__main__':
    unittest.main()
