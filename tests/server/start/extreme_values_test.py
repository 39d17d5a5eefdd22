#!/usr/bin/python3
"""Extreme numbers in every flag and in every key of config.json: each is refused by name, or works.

Usage: extreme_values_test.py PATH_OF_QUIRE_SERVER SOURCE_DIR

A server that starts answers one request. No value may end the process by a signal.
"""

import concurrent.futures
import json
import math
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

import grpc

SERVER, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
DEMO = SOURCE / 'models' / 'demo'
MODELS = SOURCE / 'tests' / 'testdata' / 'models'
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix='quire_extreme_values_'))
subprocess.run(['protoc', f'--proto_path={SOURCE}/proto', f'--python_out={SCRATCH}',
                'quire/v1/inference.proto'], check=True)
sys.path.insert(0, str(SCRATCH))
from quire.v1 import inference_pb2  # noqa: E402

PATIENCE = 300  # seconds after which a wait counts as a hang; no measurement
ENDED, FORCED, BAD_CONFIG, CANNOT_LISTEN, MODEL, DEVICE = range(6)  # exit codes of --help
REFUSED = (BAD_CONFIG, CANNOT_LISTEN, MODEL, DEVICE)
# Plans above it are not started: the test shares its machine.
MOST_PLANNED_BYTES = 1 << 30

FLAG_VALUES = ('0', '1', '-1', '2', '2147483647', '2147483648', '9223372036854775807',
               '9223372036854775808', '1e308', '1e999', '-1e999', '0.5', '1e-300', 'nan', 'inf')
KEY_VALUES = (0, 1, -1, 2, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**70, 1e308, -1e308, 1e-308, 0.5,
              float('nan'), float('inf'))
# Keys that are held against another one: a refusal may name these instead.
HELD_AGAINST = {'vocab_size': ('eos_token_id', 'bos_token_id'),
                'partial_rotary_factor': ('short_factor',)}
# One model for each set of numbers that families have.
FAMILIES = ('llama', 'llama-llama3', 'llama-yarn', 'llama-linear', 'cohere', 'cohere2', 'gemma2',
            'gemma3', 'granite', 'phi3-long', 'qwen2-sliding', 'smollm3', 'stablelm', 'starcoder2',
            'exaone4', 'fp8-channel')


def tearDownModule():
    shutil.rmtree(SCRATCH)


def number_flags():
    """The flags that take a number, from --help, each with its stand-in."""
    text = subprocess.run([SERVER, '--help'], capture_output=True, text=True, check=True).stdout
    words = re.findall(r'^ +--([a-z][a-z-]*)[ =](N|BYTES|GIB|SECONDS|SHARE|NUMBER)\b', text, re.M)
    return [name for name, _ in words]


def run(*flags):
    return subprocess.run([SERVER, *flags], capture_output=True, text=True, timeout=PATIENCE)


class Start:
    """A server until it ends by itself or has answered a request: its code, log and answer."""

    def __init__(self, flags, request=None):
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            own = {flag.split('=')[0] for flag in flags}
            listen = [] if '--port' in own else ['--uds', f'{folder}/s']
            metrics = [] if '--metrics-port' in own else ['--metrics-port', '0']
            self.log = ''
            with subprocess.Popen([SERVER, *listen, *metrics, *flags], stderr=subprocess.PIPE,
                                  text=True) as process:
                for line in process.stderr:
                    self.log += line
                    if ready := re.search(r' READY .*address=(\S+)', line):
                        self.answer = ask(ready.group(1), request or a_token())
                        process.terminate()
                    if ' draining' in line:
                        process.terminate()  # a second signal: some drains take minutes
                self.code = process.wait(timeout=PATIENCE)


def a_token():
    request = inference_pb2.GenerateRequest()
    request.token_ids.ids.append(3)
    request.stop.max_tokens = 1
    return request


def ask(address, request):
    """The frames of the answer, or the error: extreme values may well refuse a request."""
    with grpc.insecure_channel(address) as channel:
        try:
            return list(channel.unary_stream(
                '/quire.v1.Inference/Generate',
                request_serializer=inference_pb2.GenerateRequest.SerializeToString,
                response_deserializer=inference_pb2.GenerateResponse.FromString)(
                    request, timeout=PATIENCE))
        except grpc.RpcError as error:
            return error


def numbers_of(value, path=()):
    """The paths of the numbers in a JSON value; of a list, its first number."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from numbers_of(member, (*path, key))
    elif isinstance(value, list) and value:
        yield from numbers_of(value[0], (*path, 0))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def key_of(path):
    return next(part for part in reversed(path) if isinstance(part, str))


def planned_bytes(plan):
    memory = plan['memory_plan']
    return memory['total_bytes'] + memory['host_bytes']


class ExtremeValuesTest(unittest.TestCase):
    def each(self, judge, cases):
        """Judges all cases, some at a time; the messages of those that are wrong."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = [fault for fault in pool.map(lambda case: judge(*case), cases) if fault]
        self.assertEqual(wrong, [], '\n'.join(wrong))

    @staticmethod
    def judge(flags, names, where):
        """None if a server with `flags` starts or names one of `names`; else what is wrong."""
        dry = run('--dry-run', *flags)
        if dry.returncode != ENDED:
            said = dry.stderr
            if dry.returncode not in REFUSED:
                return f'{where}: --dry-run ended with {dry.returncode}: {said[-400:]}'
            named = any(name in said for name in names)
            return None if named else f'{where}: is not named in {said[-400:]}'
        if planned_bytes(json.loads(dry.stdout)) > MOST_PLANNED_BYTES:
            return None
        start = Start(flags)
        if start.code in (ENDED, FORCED):
            return None if ' READY ' in start.log else f'{where}: not READY: {start.log[-400:]}'
        named = any(name in start.log for name in names)
        if start.code in REFUSED and named:
            return None
        return f'{where}: ended with {start.code}: {start.log[-400:]}'

    def test_flags(self):
        flags = number_flags()
        self.assertGreater(len(flags), 25, flags)

        def judge(name, value):
            common = ['--model', str(DEMO), '--device', 'cpu']
            words = [*common, f'--{name}={value}']
            return self.judge(words, [f'--{name}'], f'--{name} {value}')

        self.each(judge, [(name, value) for name in flags for value in FLAG_VALUES])

    def test_keys(self):
        cases = []
        for family in FAMILIES:
            for file in ('config.json', 'generation_config.json'):
                path = MODELS / family / file
                if not path.exists():
                    continue
                for number in numbers_of(json.loads(path.read_text())):
                    cases += [(family, file, number, value) for value in KEY_VALUES]
        seen = set()
        # A key means the same in most families: the first that has it is enough, but for sizes.
        cases = [c for c in cases if not ((key_of(c[2]), repr(c[3])) in seen
                                          or seen.add((key_of(c[2]), repr(c[3]))))]
        self.assertGreater(len(cases), 500)
        self.each(self.judge_key, cases)

    def judge_key(self, family, file, path, value):
        where = f'{family}/{file}: {".".join(map(str, path))} {value!r}'
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            model = pathlib.Path(folder)
            for name in ('config.json', 'generation_config.json'):
                if (source := MODELS / family / name).exists():
                    shutil.copy(source, model)
            content = json.loads((model / file).read_text())
            holder = content
            for part in path[:-1]:
                holder = holder[part]
            holder[path[-1]] = value
            (model / file).write_text(json.dumps(content))
            flags = ['--model', folder, '--device', 'cpu', '--load-format', 'dummy',
                     '--skip-tokenizer-init']
            # JSON has neither NaN nor infinity, so such a file is refused as a whole.
            not_json = isinstance(value, float) and not math.isfinite(value)
            key = key_of(path)
            names = [f'{file}: '] if not_json else [key, *HELD_AGAINST.get(key, ())]
            return self.judge(flags, names, where)

    def test_a_plan_beyond_the_memory_is_refused(self):
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            made = json.loads((MODELS / 'llama' / 'config.json').read_text())
            made |= {'vocab_size': 2**24, 'hidden_size': 2**20, 'num_hidden_layers': 4096}
            pathlib.Path(folder, 'config.json').write_text(json.dumps(made))
            start = Start(['--model', folder, '--device', 'cpu', '--load-format', 'dummy',
                           '--skip-tokenizer-init'])
        self.assertEqual(start.code, DEVICE, start.log)
        self.assertIn('that this process may use', start.log)
        self.assertIn('weights', start.log)

    def test_as_many_end_ids_as_there_may_be(self):
        eos, stop = list(range(192)), range(192, 256)  # EOS ids of the model, stop ids of a request
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            made = json.loads((MODELS / 'llama' / 'config.json').read_text())
            made |= {'eos_token_id': eos, 'vocab_size': 260}
            pathlib.Path(folder, 'config.json').write_text(json.dumps(made))
            request = inference_pb2.GenerateRequest()
            request.token_ids.ids.append(3)
            request.stop.stop_token_ids.extend(stop)
            request.stop.min_tokens = request.stop.max_tokens = 5
            flags = ['--model', folder, '--device', 'cpu', '--load-format', 'dummy',
                     '--skip-tokenizer-init']
            first = Start(flags, request)
            made['vocab_size'] = 256
            pathlib.Path(folder, 'config.json').write_text(json.dumps(made))
            second = Start(flags, request)
        self.assertIn(first.code, (ENDED, FORCED), first.log)
        tokens = [token for frame in first.answer for token in frame.tokens.token_ids]
        self.assertEqual(len(tokens), 5)
        self.assertTrue(set(tokens) <= set(range(256, 260)), tokens)
        # Now they are all tokens that there are.
        self.assertIn(second.code, (ENDED, FORCED), second.log)
        self.assertEqual(second.answer.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn('stop.min_tokens: must be 0', second.answer.details())


if __name__ == '__main__':
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
