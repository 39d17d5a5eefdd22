#!/usr/bin/python3
"""quire-server as a process: settings, exit codes, ports, metrics and draining, over real gRPC.

Usage: server_process_test.py PATH_OF_QUIRE_SERVER SOURCE_DIR
"""

import fcntl
import http.client
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

import grpc

SERVER, SOURCE = sys.argv[1], sys.argv[2]
DEMO = os.path.join(SOURCE, 'models', 'demo')
SCRATCH = tempfile.mkdtemp(prefix='quire_process_test_')
subprocess.run(['protoc', f'--proto_path={SOURCE}/proto', f'--python_out={SCRATCH}',
                'quire/v1/inference.proto', 'quire/v1/control.proto'], check=True)
sys.path.insert(0, SCRATCH)
from quire.v1 import control_pb2, inference_pb2  # noqa: E402

FINISHED = inference_pb2.FinishReason.Name
PATIENCE = 60  # seconds after which a wait counts as a hang; no measurement
# Slowdown of a program built with a sanitizer, and of a machine with more to run than processors.
SANITIZED = bool({'ASAN_OPTIONS', 'TSAN_OPTIONS'} & os.environ.keys())
SLOWNESS = 10 if SANITIZED else 1
SLOWNESS *= max(1, round(os.getloadavg()[0] / os.cpu_count()))


def run(*flags, environment=None):
    """Runs a server that ends by itself."""
    return subprocess.run([SERVER, *flags], env={**os.environ, **(environment or {})},
                          capture_output=True, text=True, timeout=PATIENCE)


def dry_run(*flags, environment=None):
    done = run('--dry-run', *flags, environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Server:
    """A running server. A thread reads its log; event() waits for a line."""

    def __init__(self, *flags, environment=None):
        listen = () if '--uds' in flags else ('--port', '0')
        began = time.monotonic()
        self.process = subprocess.Popen(
            [SERVER, *listen, '--metrics-port', '0', '--log-format', 'json', *flags],
            env={**os.environ, **(environment or {})}, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read_log, daemon=True).start()
        ready = self.event('READY')
        self.seconds_to_ready = time.monotonic() - began
        self.reported_seconds = ready['seconds']
        self.port, self.metrics_port = ready['port'], ready['metrics_port']
        self.address = ready['address']
        self.channel = grpc.insecure_channel(self.address)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def _read_log(self):
        for line in self.process.stderr:
            with self.changed:
                self.log.append(line)
                self.changed.notify_all()
        with self.changed:
            self.log.append(None)
            self.changed.notify_all()

    def event(self, name):
        """Waits for an event of this name; its fields."""
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while True:
                for line in self.log:
                    if line is not None and json.loads(line)['event'].startswith(name):
                        return json.loads(line)
                if None in self.log or not self.changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f'no event {name} in {self.log}')

    def get(self, path):
        connection = http.client.HTTPConnection('127.0.0.1', self.metrics_port, timeout=PATIENCE)
        try:
            connection.request('GET', path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        """The sum over the series of this name."""
        pattern = re.compile('^' + re.escape(name) + r'(?:\{[^}]*\})? (\S+)$', re.M)
        values = pattern.findall(self.get('/metrics')[1])
        assert values, name
        return sum(float(v) for v in values)

    def generate(self, tokens, text='Tell me a story.', **fields):
        """A stream of exactly this many tokens."""
        request = inference_pb2.GenerateRequest(text=text, **fields)
        request.stop.max_tokens = tokens
        request.stop.ignore_eos = True
        request.sampling.seed = 1
        return self.channel.unary_stream(
            '/quire.v1.Inference/Generate',
            request_serializer=inference_pb2.GenerateRequest.SerializeToString,
            response_deserializer=inference_pb2.GenerateResponse.FromString)(
                request, timeout=PATIENCE)

    def begin(self, tokens):
        """A stream that has sent its first token."""
        stream = self.generate(tokens)
        for frame in stream:
            if frame.HasField('tokens'):
                return stream
        raise AssertionError('the stream ended before its first token')

    def health(self):
        """1 SERVING, 2 NOT_SERVING, read from the raw HealthCheckResponse."""
        reply = self.channel.unary_unary('/grpc.health.v1.Health/Check')(b'', timeout=PATIENCE)
        return reply[1] if len(reply) >= 2 else 0

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(timeout=PATIENCE)


def end_of(stream):
    """Reads a stream to its end: (tokens, Finished)."""
    tokens, finished = 0, None
    for frame in stream:
        if frame.HasField('tokens'):
            tokens += len(frame.tokens.token_ids)
        if frame.HasField('finished'):
            finished = frame.finished
    return tokens, finished


class Settings(unittest.TestCase):
    def test_help_and_version(self):
        shown = run('--help')
        self.assertEqual(shown.returncode, 0)
        self.assertIn('--max-num-seqs', shown.stdout)
        self.assertRegex(run('--version').stdout, r'^quire-server \d+\.\d+\.\d+ \(commit '
                         r'([0-9a-f]{12}|unknown), \w+ [\d.]+, (no CUDA|CUDA [\d.]+), \w+\)\n$')

    def test_bad_settings_exit_2_and_name_the_nearest(self):
        for flags, environment, wanted in (
                (('--max-num-seq', '4'), {}, 'nearest is --max-num-seqs'),
                ((), {'QUIRE_MAX_NUM_SEQ': '4'}, 'nearest is QUIRE_MAX_NUM_SEQS'),
                (('--port', '70000'), {}, '0 to 65535'),
                (('--uds', '/tmp/x', '--port', '1'), {}, 'contradict'),
                (('--host', '0.0.0.0'), {}, 'plaintext'),
                (('--config', '/nonexistent'), {}, '/nonexistent'),
                # Valid alone, but not with this model.
                (('--max-model-len', '1000000'), {}, '--max-model-len'),
                (('--num-blocks-override', '2', '--max-model-len', '4096'), {}, 'KV cache')):
            with self.subTest(flags=flags):
                done = run(*flags, environment=environment)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(wanted, done.stderr)

    @unittest.skipIf(SANITIZED, 'a sanitizer takes more address space than any limit leaves')
    def test_more_threads_than_the_system_starts_are_refused_by_name(self):
        def limit():  # below 1024 of the smallest stacks that threads get
            resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        done = subprocess.run([SERVER, '--model', DEMO, '--port', '0', '--metrics-port', '0',
                               '--cpu-threads', '1024'], capture_output=True, text=True,
                              timeout=PATIENCE, preexec_fn=limit)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r'--cpu-threads 1024: the system lets this process start '
                                      r'\d+ more threads.* use at most \d+, or raise the limit')

    def test_the_dry_run_shows_precedence(self):
        path = os.path.join(SCRATCH, 'settings.json')
        with open(path, 'w') as file:
            json.dump({'port': 1001, 'max-num-seqs': 11, 'log-level': 'debug'}, file)
        plan = dry_run('--config', path, '--port', '3003',
                       environment={'QUIRE_PORT': '2002', 'QUIRE_MAX_NUM_SEQS': '22'})
        self.assertEqual(plan['config']['port'], 3003)
        self.assertEqual(plan['config']['max-num-seqs'], 22)
        self.assertEqual(plan['config']['log-level'], 'debug')
        self.assertEqual(plan['sources'], {'port': 'flag', 'max-num-seqs': 'environment',
                                           'log-level': 'file', 'dry-run': 'flag'})

    def test_the_dry_run_resolves_settings_and_adds_up(self):
        plan = dry_run('--kv-cache-memory-bytes', '64MiB')
        self.assertEqual(plan['config']['device'], 'cpu')
        self.assertEqual(plan['config']['block-size'], 16)
        memory = plan['memory_plan']
        self.assertEqual(sum(memory['bytes_per_rank'].values()), memory['total_bytes_per_rank'])
        self.assertLessEqual(memory['bytes_per_rank']['kv_cache'], 64 << 20)
        self.assertEqual(memory['kv_tokens'], (memory['num_blocks'] - 1) * memory['block_size'])

    def test_ready_has_the_tokens_of_the_kv_cache(self):
        flags = ('--num-blocks-override', '101', '--kv-offloading-size', '0.01')
        plan = dry_run(*flags)['memory_plan']
        with Server(*flags) as server:
            ready = server.event('READY')
            self.assertEqual(ready['kv_tokens'], 1600)
            self.assertEqual(ready['host_kv_tokens'], plan['num_pages'] * 16)
            self.assertEqual(ready['host_kv_tokens'], 16 * server.metric('quire_host_pages'))

    def test_the_dry_run_needs_no_weights_and_no_port(self):
        model = os.path.join(SCRATCH, 'config_only')
        os.makedirs(model, exist_ok=True)
        for name in ('config.json', 'tokenizer.json'):
            shutil.copy(os.path.join(DEMO, name), model)
        with Server() as server:
            plan = dry_run('--model', model, '--port', str(server.port))
        self.assertEqual(plan['config']['model'], model)
        self.assertEqual(plan['model']['chat_template'], 'none')
        self.assertEqual(dry_run()['model']['chat_template'], 'usable')

    def test_the_tokenizer_may_stand_elsewhere_or_be_left_out(self):
        model = os.path.join(SCRATCH, 'bare_config')
        os.makedirs(model, exist_ok=True)
        shutil.copy(os.path.join(DEMO, 'config.json'), model)
        plan = dry_run('--model', model, '--tokenizer', DEMO)
        self.assertEqual(plan['model']['chat_template'], 'usable')
        plan = dry_run('--model', model, '--skip-tokenizer-init')
        self.assertEqual(plan['model']['chat_template'], 'none')
        done = run('--model', model, '--dry-run')
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn('--skip-tokenizer-init', done.stderr)

    def test_the_dry_run_refuses_a_tokenizer_that_the_server_refuses(self):
        model = os.path.join(SCRATCH, 'bad_tokenizer')
        shutil.copytree(DEMO, model)
        with open(os.path.join(model, 'tokenizer.json'), 'w') as file:
            file.write('{"model": {"type": "Unigram"}}')
        for flags in (('--dry-run',), ('--port', '0', '--metrics-port', '0')):
            done = run('--model', model, *flags)
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertIn('tokenizer.json', done.stderr)
            self.assertEqual(done.stdout, '')

    def test_the_model_stands_alone_and_answers_to_every_served_name(self):
        with Server(DEMO, '--served-model-name', 'first', 'second') as server:
            self.assertEqual(server.event('READY')['model'], 'first')
            for name in ('first', 'second'):
                request = inference_pb2.GenerateRequest(text='x', model=name)
                request.stop.max_tokens = 1
                accepted = next(iter(server.channel.unary_stream(
                    '/quire.v1.Inference/Generate',
                    request_serializer=inference_pb2.GenerateRequest.SerializeToString,
                    response_deserializer=inference_pb2.GenerateResponse.FromString)(
                        request, timeout=PATIENCE))).accepted
                self.assertEqual(accepted.model, 'first')


class CannotStart(unittest.TestCase):
    def test_model_that_cannot_be_loaded_exits_4(self):
        empty = os.path.join(SCRATCH, 'empty')
        truncated = os.path.join(SCRATCH, 'truncated')
        os.makedirs(empty, exist_ok=True)
        shutil.copytree(DEMO, truncated)
        weights = os.path.join(truncated, 'model.safetensors')
        with open(weights, 'r+b') as file:
            file.truncate(os.path.getsize(weights) // 2)
        no_tokenizer = os.path.join(SCRATCH, 'no_tokenizer')
        shutil.copytree(DEMO, no_tokenizer)
        os.remove(os.path.join(no_tokenizer, 'tokenizer.json'))
        for model in ('/nonexistent/model', empty, truncated, no_tokenizer, SERVER):
            with self.subTest(model=model):
                done = run('--model', model, '--port', '0', '--metrics-port', '0')
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(model, done.stderr)

    def test_device_that_is_missing_exits_5(self):
        done = run('--device', 'cuda', '--port', '0', '--metrics-port', '0')
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn('--device', done.stderr)

    def test_ports_in_use_exit_3_before_anything_is_loaded(self):
        with Server() as first:
            for flags, named in (
                    (('--port', str(first.port), '--metrics-port', '0'), '--port'),
                    (('--port', '0', '--metrics-port', str(first.metrics_port)),
                     '--metrics-port')):
                with self.subTest(flags=flags):
                    # If the server tried to load this model, its error would come first.
                    done = run(*flags, '--model', '/nonexistent/model')
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertIn(named, done.stderr)
            self.assertEqual(first.health(), 1)

    def test_unix_socket_is_private_replaced_when_stale_and_refused_when_live(self):
        path = os.path.join(SCRATCH, 'quire.sock')
        with Server('--uds', path) as first:
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode) & 0o077, 0)
            self.assertEqual(end_of(first.generate(3))[0], 3)
            done = run('--uds', path, '--metrics-port', '0')
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(path, done.stderr)
            first.signal(signal.SIGKILL)
            first.wait()
        self.assertTrue(os.path.exists(path))
        with Server('--uds', path) as second:
            self.assertEqual(end_of(second.generate(3))[0], 3)


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def await_status(port, path, wanted):
    """Waits until a page of the admin port, which may not listen yet, has this status."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=PATIENCE)
        try:
            connection.request('GET', path)
            response = connection.getresponse()
            if response.status == wanted:
                return response.read().decode()
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.01)
    raise AssertionError(f'{path} never {wanted}')


class Watching(unittest.TestCase):
    def test_sigterm_at_any_moment_of_the_start_exits_0(self):
        for _ in range(5):
            port = free_port()
            process = subprocess.Popen([SERVER, '--port', '0', '--metrics-port', str(port)],
                                       stderr=subprocess.DEVNULL)
            try:
                await_status(port, '/livez', 200)  # the port answers from the start
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(timeout=PATIENCE), 0)
            finally:
                process.kill()
                process.wait()

    def test_a_request_changes_the_metrics(self):
        with Server() as server:
            self.assertEqual(server.metric('quire_generated_tokens_total'), 0)
            tokens, finished = end_of(server.generate(20))
            self.assertEqual(tokens, 20)
            self.assertEqual(FINISHED(finished.reason), 'FINISH_REASON_MAX_TOKENS')
            self.assertGreaterEqual(server.metric('quire_generated_tokens_total'), 20)
            self.assertEqual(server.metric('quire_generated_tokens_total'),
                             server.metric('vllm:generation_tokens_total'))
            self.assertEqual(server.metric('quire_prompt_tokens_total'),
                             finished.usage.prompt_tokens)
            self.assertEqual(server.metric('vllm:time_to_first_token_seconds_count'), 1)
            self.assertEqual(server.metric('vllm:inter_token_latency_seconds_count'), 19)
            self.assertEqual(server.metric('vllm:request_success_total'), 1)
            self.assertEqual(server.metric('quire_requests_running'), 0)
            self.assertEqual(server.metric('quire_kv_blocks_free'),
                             server.metric('quire_kv_blocks'))
            print(f'exec to READY: {server.seconds_to_ready:.3f} s, by its own clock '
                  f'{server.reported_seconds:.3f} s')

    def test_pages(self):
        with Server('--served-model-name', '<b>"x"') as server:
            for path in ('/health', '/livez', '/readyz', '/startupz'):
                self.assertEqual(server.get(path), (200, 'ok\n'))
            build = json.loads(server.get('/version')[1])
            shown = run('--version').stdout
            self.assertIn(f"{build['version']} (commit {build['commit']}, {build['compiler']}, ",
                          shown)
            self.assertIn(build['build_type'], shown)
            labels = ','.join(f'{name}="{build[name]}"' for name in
                              ('build_type', 'commit', 'compiler', 'cuda', 'version'))
            self.assertIn(f'{labels}}} 1', re.search('quire_build_info{.*',
                                                     server.get('/metrics')[1]).group())
            self.assertEqual(server.get('/nothing')[0], 404)
            status, page = server.get('/')
            self.assertEqual(status, 200)
            self.assertIn('viewport', page)
            self.assertNotIn('<b>"x"', page)
            self.assertEqual(json.loads(server.get('/status.json')[1])['model'], '<b>"x"')
            self.assertEqual(server.health(), 1)

    def test_insecure_plaintext_serves_all_addresses_and_warns(self):
        with Server('--host', '0.0.0.0', '--insecure-plaintext') as server:
            warning = server.event('--insecure-plaintext')
            self.assertEqual(warning['severity'].upper(), 'WARNING')
            self.assertEqual(warning['host'], '0.0.0.0')
            self.assertEqual(server.health(), 1)
        with Server('--insecure-plaintext') as server:
            self.assertNotIn('may use, abort and drain', ''.join(filter(None, server.log)))

    def test_ten_stalled_scrapers_delay_no_other(self):
        with Server() as server:
            stalled = []
            for number in range(10):
                peer = socket.create_connection(('127.0.0.1', server.metrics_port))
                if number % 2:
                    peer.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n')
                stalled.append(peer)
            for _ in range(20):
                self.assertEqual(server.get('/metrics')[0], 200)
            for peer in stalled:
                peer.close()

    def test_prompts_stay_out_of_logs_and_pages(self):
        canary = 'zebra-canary-4711'
        with Server('--log-level', 'debug') as server:
            end_of(server.generate(5, text=f'My secret is {canary}.'))
            with self.assertRaises(grpc.RpcError):
                end_of(server.generate(10 ** 6, text=canary))
            self.assertEqual(server.event('request finished')['completion_tokens'], 5)
            server.event('requests refused')
            pages = ''.join(server.get(path)[1] for path in
                            ('/metrics', '/', '/status.json', '/history.json'))
            server.signal()
            self.assertEqual(server.wait(), 0)
            server.event('stopped')
            self.assertNotIn(canary, ''.join(line for line in server.log if line) + pages)


def send_and_read(line, data):
    """Sends all of it and reads what comes meanwhile: a peer that is not read stops reading too."""
    data = memoryview(data)
    while data:
        readable, writable, _ = select.select([line], [line], [], PATIENCE)
        assert readable or writable, 'the server neither reads nor writes'
        if readable and not line.recv(65536):
            raise ConnectionError('cut')
        if writable:
            data = data[line.send(data):]


def flood_with_resets(port, path, count):
    """Opens and resets `count` calls in plain HTTP/2; connects again when the server cuts it."""
    def frame(kind, flags, stream, payload):
        return (len(payload).to_bytes(3, 'big') + bytes([kind, flags])
                + stream.to_bytes(4, 'big') + payload)

    def literal(name, value):  # a header, uncompressed
        return b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value
    headers = (b'\x83\x86' + literal(b':path', path) + literal(b':authority', b'x')  # POST, http
               + literal(b'content-type', b'application/grpc') + literal(b'te', b'trailers'))
    while count > 0:
        with socket.create_connection(('127.0.0.1', port), timeout=PATIENCE) as line:
            line.setblocking(False)
            try:
                send_and_read(line, b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b''))
                for stream in range(1, 2 * count, 2000):
                    send_and_read(line, b''.join(
                        frame(1, 4, i, headers) + frame(3, 0, i, (8).to_bytes(4, 'big'))
                        for i in range(stream, stream + 2000, 2)))
                    count -= 1000
            except OSError:
                pass  # cut


def await_full(fifo):
    """Returns once the writer of the named pipe waits for a reader to empty it."""
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        deadline = time.monotonic() + PATIENCE
        while int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), 'little') < 1 << 16:
            assert time.monotonic() < deadline, f'nothing is written to {fifo}'
            time.sleep(0.01)
    finally:
        os.close(end)


class Draining(unittest.TestCase):
    def test_sigterm_lets_a_running_stream_finish(self):
        with Server() as server:
            stream = server.begin(1500)
            server.signal()
            server.event('draining')
            self.assertEqual(server.get('/livez')[0], 200)
            self.assertEqual(server.get('/readyz'), (503, 'draining\n'))
            self.assertEqual(server.get('/metrics')[0], 200)
            tokens, finished = end_of(stream)
            self.assertEqual(FINISHED(finished.reason), 'FINISH_REASON_MAX_TOKENS')
            self.assertEqual(finished.usage.completion_tokens, 1500)
            self.assertEqual(server.wait(), 0)
            server.event('stopped')

    def test_new_requests_are_refused_while_draining(self):
        with Server() as server:
            stream = server.begin(3000)
            server.signal()
            server.event('draining')
            with self.assertRaises(grpc.RpcError) as refused:
                while True:  # until the flag, which is set right after the event
                    end_of(server.generate(1))
            self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertIn('draining', refused.exception.details())
            stream.cancel()
            self.assertEqual(server.wait(), 0)

    def test_health_is_off_and_requests_are_served_during_the_drain_delay(self):
        with Server('--drain-delay', '600s') as server:
            server.signal()
            server.event('draining')
            self.assertEqual(server.health(), 2)
            self.assertEqual(server.get('/readyz')[0], 503)
            self.assertEqual(end_of(server.generate(3))[0], 3)
            server.signal()
            self.assertEqual(server.wait(), 1)

    def test_streams_that_do_not_finish_in_time_end_with_unavailable(self):
        with Server('--shutdown-timeout', '100ms') as server:
            stream = server.begin(4000)
            server.signal()
            with self.assertRaises(grpc.RpcError) as ended:
                end_of(stream)
            self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(server.wait(), 0)

    def test_a_second_signal_ends_at_once(self):
        for second in (signal.SIGTERM, signal.SIGINT):
            with Server('--shutdown-timeout', '3600s') as server:
                server.begin(4000)
                server.signal()
                server.event('draining')
                server.signal(second)
                self.assertEqual(server.wait(), 1)
                server.event('second signal')

    def test_a_shutdown_that_hangs_says_where_and_ends_by_force(self):
        # The KV of session 1 goes into a pipe that is never read, as to a disk that hangs.
        folder = tempfile.mkdtemp(dir=SCRATCH)
        fifo = os.path.join(folder, '1.kv.unfinished')
        os.mkfifo(fifo)
        with Server('--session-dir', folder, '--session-idle-offload-after', '0',
                    '--kv-offloading-size', '0.01', '--shutdown-timeout', '0s') as server:
            end_of(server.generate(100, session_id='talk', create_session=True))
            await_full(fifo)
            server.begin(4000)
            server.signal()
            self.assertEqual(server.wait(), 1)
            hung = server.event('shutdown hung')
            self.assertEqual(hung['step'], 'session directory')
            # The calls ended one step earlier, the one that was open too.
            for name in ('streams', 'calls', 'text_jobs', 'running', 'waiting'):
                self.assertEqual(hung[name], 0, name)

    def test_a_flood_of_resets_before_it_does_not_delay_the_end(self):
        with Server('--shutdown-timeout', '0s') as server:  # after 5 s more: the end by force
            flood_with_resets(
                server.port, b'/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
                80000 // SLOWNESS)
            server.signal()
            self.assertEqual(server.wait(), 0, server.log)

    def test_a_client_drains_undrains_and_ends_the_server(self):
        with Server() as server:
            def control(method, request, response):
                return server.channel.unary_unary(
                    f'/quire.v1.Control/{method}',
                    request_serializer=type(request).SerializeToString,
                    response_deserializer=response.FromString)(request, timeout=PATIENCE)

            def drain(**fields):
                control('Drain', control_pb2.DrainRequest(**fields), control_pb2.DrainResponse)

            def undrain():
                return control('Undrain', control_pb2.UndrainRequest(),
                               control_pb2.UndrainResponse)
            drain()
            self.assertEqual(server.get('/readyz'), (503, 'draining\n'))
            self.assertEqual(server.get('/livez')[0], 200)
            self.assertEqual(server.get('/health')[0], 200)
            self.assertEqual(server.health(), 2)
            self.assertEqual(server.event('drain: ')['exit_when_idle'], False)
            server.event('drained')
            self.assertTrue(undrain().was_draining)
            server.event('undrain')
            self.assertEqual(server.get('/readyz'), (200, 'ok\n'))
            self.assertEqual(server.health(), 1)
            self.assertEqual(end_of(server.generate(3))[0], 3)
            drain(exit_when_idle=True)
            self.assertEqual(server.wait(), 0)
            server.event('drain ended')

    def test_a_stalled_log_reader_does_not_stop_the_server(self):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b'x' * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        metrics_port = free_port()
        process = subprocess.Popen([SERVER, '--port', '0', '--metrics-port', str(metrics_port)],
                                   stderr=writer)
        try:
            await_status(metrics_port, '/readyz', 200)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=PATIENCE), 0)
        finally:
            process.kill()
            process.wait()
            os.close(reader)
            os.close(writer)


if __name__ == '__main__':
    try:
        unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
