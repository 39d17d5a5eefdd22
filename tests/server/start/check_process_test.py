#!/usr/bin/python3
"""quire-server --check beside a start with the same flags: exit codes, reasons and facts.

Usage: check_process_test.py PATH_OF_QUIRE_SERVER SOURCE_DIR
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc

SERVER, SOURCE = sys.argv[1], sys.argv[2]
DEMO = os.path.join(SOURCE, 'models', 'demo')
MODELS = os.path.join(SOURCE, 'tests', 'testdata', 'models')
SCRATCH = tempfile.mkdtemp(prefix='quire_check_test_')
subprocess.run(['protoc', f'--proto_path={SOURCE}/proto', f'--python_out={SCRATCH}',
                'quire/v1/control.proto'], check=True)
sys.path.insert(0, SCRATCH)
from quire.v1 import control_pb2  # noqa: E402

PATIENCE = 120  # seconds after which a wait counts as a hang; no measurement
START = ('--device', 'cpu', '--port', '0', '--metrics-port', '0')


def tearDownModule():
    shutil.rmtree(SCRATCH)


def run(*flags):
    return subprocess.run([SERVER, *flags], capture_output=True, text=True, timeout=PATIENCE)


def check(model, *flags):
    return run('--model', model, '--device', 'cpu', '--check', *flags)


def facts(page):
    """The facts of each section of a page, by title and name."""
    found, title = {}, None
    for line in page.split('\n'):
        if line and not line.startswith(' '):
            title = line
        name, value = line[2:22].strip(), line[22:]
        if name and value:
            found[title, name] = value
    return found


def number(text):
    return int(text.split()[0].replace(',', ''))


def model_info(model, *flags):
    """What a server with these flags answers to GetModelInfo and GetMemoryPlan."""
    process = subprocess.Popen([SERVER, '--model', model, *START, '--log-format', 'json', *flags],
                               stderr=subprocess.PIPE, text=True)
    try:
        watch = threading.Timer(PATIENCE, process.kill)
        watch.start()
        ready = next(line for line in map(json.loads, process.stderr) if line['event'] == 'READY')
        with grpc.insecure_channel(ready['address']) as channel:
            def call(method, request, response):
                return channel.unary_unary(
                    f'/quire.v1.Control/{method}',
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString)(request(), timeout=PATIENCE)
            return (call('GetModelInfo', control_pb2.GetModelInfoRequest, control_pb2.ModelInfo),
                    call('GetMemoryPlan', control_pb2.GetMemoryPlanRequest,
                         control_pb2.MemoryPlan))
    finally:
        watch.cancel()
        process.kill()
        process.communicate()


def copy(name, of=DEMO):
    """A copy of a model's directory, to be broken."""
    path = os.path.join(SCRATCH, name)
    shutil.copytree(of, path)
    return path


def edit(path, change):
    """Lets `change` edit the JSON object in a file."""
    with open(path) as file:
        value = json.load(file)
    change(value)
    with open(path, 'w') as file:
        json.dump(value, file)


def edit_header(path, change):
    """Lets `change` edit the header of a safetensors file."""
    with open(path, 'rb') as file:
        data = file.read()
    end = 8 + struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:end])
    change(header)
    text = json.dumps(header).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data[end:])


def rename(header, name):
    header[name + '_old'] = header.pop(name)


def write_sparse_llama_70b(folder):
    """Shards with the headers of a model of 70 billion parameters, and holes for its data."""
    hidden, mlp, layers, kv, vocabulary = 8192, 28672, 80, 1024, 128256
    edit(os.path.join(folder, 'config.json'), lambda c: c.update(
        hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers, head_dim=128,
        num_attention_heads=64, num_key_value_heads=8, vocab_size=vocabulary,
        tie_word_embeddings=False, max_position_embeddings=8192))
    shapes = {'input_layernorm': [hidden], 'post_attention_layernorm': [hidden],
              'self_attn.q_proj': [hidden, hidden], 'self_attn.k_proj': [kv, hidden],
              'self_attn.v_proj': [kv, hidden], 'self_attn.o_proj': [hidden, hidden],
              'mlp.gate_proj': [mlp, hidden], 'mlp.up_proj': [mlp, hidden],
              'mlp.down_proj': [hidden, mlp]}
    shards = [{f'model.layers.{i}.{name}.weight': shape for name, shape in shapes.items()}
              for i in range(layers)]
    shards.append({'model.embed_tokens.weight': [vocabulary, hidden],
                   'lm_head.weight': [vocabulary, hidden], 'model.norm.weight': [hidden]})
    listed, total = {}, 0
    for i, tensors in enumerate(shards):
        at, header, file_name = 0, {}, f'model-{i:05}.safetensors'
        for name, shape in tensors.items():
            size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
            header[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [at, at + size]}
            listed[name] = file_name
            at += size
        text = json.dumps(header).encode()
        with open(os.path.join(folder, file_name), 'wb') as file:
            file.write(struct.pack('<Q', len(text)) + text)
            file.truncate(8 + len(text) + at)
        total += at
    with open(os.path.join(folder, 'model.safetensors.index.json'), 'w') as file:
        json.dump({'weight_map': listed}, file)
    return total


class Facts(unittest.TestCase):
    def test_they_are_those_of_the_running_server(self):
        for model, flags in ((DEMO, ()), (DEMO, ('--dtype', 'float32', '--block-size', '32')),
                             (os.path.join(MODELS, 'gemma2'), ('--skip-tokenizer-init',)),
                             (os.path.join(MODELS, 'phi3-short'), ('--skip-tokenizer-init',
                                                                  '--max-model-len', '512'))):
            with self.subTest(model=model, flags=flags):
                done = check(model, *flags)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.endswith('\nwould start\n'), done.stdout)
                page = facts(done.stdout)
                info, plan = model_info(model, *flags)
                self.assertEqual(page['Model', 'served as'], info.model)
                self.assertEqual(page['Model', 'architecture'].split()[0], info.architecture)
                for (title, name), value in {
                        ('Model', 'parameters'): info.num_parameters,
                        ('Model', 'vocabulary'): info.vocab_size,
                        ('Model', 'layers'): info.num_layers,
                        ('Model', 'hidden size'): info.hidden_size,
                        ('Device', 'context'): info.max_model_len,
                        ('Device', 'KV cache'): plan.kv_tokens}.items():
                    self.assertEqual(number(page[title, name]), value, name)
                self.assertEqual(page['Device', 'weights as'], info.dtype)
                self.assertEqual(page['Device', 'KV as'], info.kv_cache_dtype)
                self.assertEqual(page.get(('Chat template', 'template')) == 'parsed',
                                 info.has_chat_template)
                if ('Tokenizer', 'EOS') in page:
                    ids = re.findall(r'(\d+) "', page['Tokenizer', 'EOS'])
                    self.assertEqual([int(i) for i in ids], list(info.eos_token_ids))

    def test_the_text_sections_show_the_tokenizer_and_the_template_at_work(self):
        page = facts(check(DEMO).stdout)
        self.assertTrue(page['Tokenizer', 'a text and back'].endswith('tokens, the same'))
        self.assertEqual(page['Tokenizer', 'pre_tokenizer'], 'Sequence(Split, ByteLevel)')
        self.assertEqual(page['Chat template', 'user, assistant'],
                         '"<|bos|><|user|>Hello<|end|><|assistant|>Hi.<|end|>"')
        self.assertEqual(page['Generation defaults', 'keys not read'], '"pad_token_id"')

    def test_json_has_the_same_page(self):
        text = check(DEMO)
        done = check(DEMO, '--log-format', 'json')
        self.assertEqual(done.returncode, 0, done.stderr)
        page = json.loads(done.stdout)
        self.assertEqual((page['starts'], page['exit_code'], page['problems']), (True, 0, []))
        self.assertEqual(page['sections']['Chat template']['file'],
                         os.path.join(DEMO, 'tokenizer_config.json'))
        # Numbers that depend on the free memory of the moment are not compared.
        told = {(title, name): value.split('\n')[0] for title, section in page['sections'].items()
                for name, value in section.items() if title != 'Device'}
        shown = {key: value for key, value in facts(text.stdout).items() if key[0] != 'Device'}
        self.assertEqual({key: told.get(key) for key in shown}, shown)

    def test_tensors_of_other_towers_are_counted(self):
        page = facts(check(os.path.join(MODELS, 'gemma3-vision'),
                           '--skip-tokenizer-init').stdout)
        self.assertEqual(page['Weights', 'not part of it'],
                         'multi_modal_projector.*: 2, vision_tower.*: 32')

    # The disk does not hold what the files claim, so a read of the data would not end in time.
    def test_the_data_of_141_gb_is_not_read(self):
        model = copy('llama70b')
        os.remove(os.path.join(model, 'model.safetensors'))
        total = write_sparse_llama_70b(model)
        done = check(model, '--kv-offloading-size', '0')
        held = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') > total
        self.assertIn(done.returncode, (0, 5) if held else (5,), done.stdout + done.stderr)
        page = facts(done.stdout)
        self.assertEqual(page['Weights', 'files'], '81')
        self.assertEqual(page['Weights', 'tensors'], f'723, {total / 2**30:.2f} GiB')
        self.assertEqual(page['Model', 'parameters'], '70,553,706,496')
        self.assertEqual(page['Weights', 'names and shapes'], 'as config.json makes them')
        if done.returncode == 5:
            self.assertIn('the plan takes 13', done.stdout)  # 131 GiB and the KV cache


class Refusals(unittest.TestCase):
    def refused(self, model, code, *reasons, flags=()):
        """The page of a model that neither starts nor passes, with all these reasons."""
        done = check(model, *flags)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        end = done.stdout[done.stdout.index(f'would not start (exit code {code}):'):]
        for reason in reasons:
            self.assertIn(reason, end)
        self.assertEqual(run('--model', model, *START, *flags).returncode, code)
        return done.stdout

    def test_missing_shards(self):
        model = copy('missing_shards', of=os.path.join(MODELS, 'llama-sharded'))
        for shard in ('model-00002-of-00004.safetensors', 'model-00004-of-00004.safetensors'):
            os.remove(os.path.join(model, shard))
        self.refused(model, 4, 'model-00002-of-00004.safetensors: No such file',
                     'model-00004-of-00004.safetensors: No such file',
                     flags=('--skip-tokenizer-init',))

    def test_missing_and_misshapen_tensors(self):
        model = copy('tensors')

        def change(header):
            rename(header, 'model.layers.1.self_attn.q_proj.weight')
            rename(header, 'model.layers.3.mlp.up_proj.weight')
            header['model.norm.weight']['shape'].append(1)
        edit_header(os.path.join(model, 'model.safetensors'), change)
        self.refused(model, 4, 'model.layers.1.self_attn.q_proj.weight": is missing',
                     'model.layers.3.mlp.up_proj.weight": is missing',
                     'model.norm.weight": has shape [256, 1], config.json makes it [256]',
                     'model.layers.1.self_attn.q_proj.weight_old": is not part')

    def test_no_tokenizer(self):
        model = copy('no_tokenizer')
        os.remove(os.path.join(model, 'tokenizer.json'))
        self.refused(model, 4, 'has no tokenizer')

    def test_the_json_of_a_refusal(self):
        done = check(DEMO, '--log-format', 'json', '--chat-template', '/nonexistent/a.jinja')
        self.assertEqual(done.returncode, 4, done.stderr)
        page = json.loads(done.stdout)
        self.assertEqual((page['starts'], page['exit_code']), (False, 4))
        self.assertEqual(page['problems'], [
            {'exit_code': 4, 'reason': '/nonexistent/a.jinja: there is no such file'}])

    def test_a_chat_template_of_a_file(self):
        good, broken = (os.path.join(SCRATCH, f'{name}.jinja') for name in ('good', 'broken'))
        with open(good, 'w') as file:
            file.write('{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}')
        with open(broken, 'w') as file:
            file.write('{{ bos_token }}\n  {% include "x" %}')
        done = check(DEMO, '--chat-template', good)
        self.assertEqual(done.returncode, 0, done.stderr)
        page = facts(done.stdout)
        self.assertEqual(page['Chat template', 'file'], good)
        self.assertEqual(page['Chat template', 'user, assistant'], '"<|bos|>[Hello][Hi.]"')
        self.assertTrue(model_info(DEMO, '--chat-template', good)[0].has_chat_template)
        missing = os.path.join(SCRATCH, 'missing.jinja')
        self.refused(DEMO, 4, f'{missing}: there is no such file',
                     flags=('--chat-template', missing))
        place = f"{broken}: chat template: line 2, column 6: block 'include' is not supported"
        self.refused(DEMO, 4, place, flags=('--chat-template', broken))
        self.assertIn(place, run('--model', DEMO, *START, '--chat-template', broken).stderr)

    def test_named_templates_and_their_files(self):
        model = copy('named')
        os.makedirs(os.path.join(model, 'additional_chat_templates'))
        for name, text in (('rag', '{% x %}'), ('tool_use', 't')):
            with open(os.path.join(model, 'additional_chat_templates', f'{name}.jinja'), 'w') as f:
                f.write(text)
        with open(os.path.join(model, 'chat_template.jinja'), 'w') as file:
            file.write('d')
        page = json.loads(check(model, '--log-format', 'json').stdout)
        section = page['sections']['Chat template']
        self.assertEqual(section['file'], os.path.join(model, 'chat_template.jinja'))
        rag, tools = (os.path.join(model, 'additional_chat_templates', f'{name}.jinja')
                      for name in ('rag', 'tool_use'))
        self.assertEqual(section['others'], f'rag of {rag}: refused\ntool_use of {tools}')
        self.assertEqual(page['notes'], [
            f"chats with the template 'rag' will be refused: {rag}: chat template: "
            "line 1, column 4: block 'x' is not supported"])

    def test_a_broken_chat_template_is_no_reason(self):
        model = copy('template')
        with open(os.path.join(model, 'chat_template.jinja'), 'w') as file:
            file.write('{% for message in messages')
        done = check(model)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('note: chat requests will be refused: ', done.stdout)
        self.assertIn('chat_template.jinja', done.stdout)
        self.assertFalse(model_info(model)[0].has_chat_template)

    def test_configs(self):
        for name, change, reasons in (
                ('architecture', {'architectures': ['GPT2LMHeadModel']}, ('GPT2LMHeadModel',)),
                ('quantized', {'quantization_config': {'quant_method': 'aqlm', 'bits': 2}},
                 ('"quant_method" is "aqlm"', '"fp8" and "modelopt" with 8-bit floats')),
                ('two', {'hidden_act': 'tanh', 'vocab_size': 'many', 'is_encoder_decoder': True},
                 ('"vocab_size" is "many"', '"is_encoder_decoder"'))):
            with self.subTest(name=name):
                model = copy(name)
                edit(os.path.join(model, 'config.json'), lambda c, new=change: c.update(new))
                self.refused(model, 4, *reasons)

    def test_other_formats(self):
        torch, gguf = copy('torch'), copy('gguf')
        os.rename(os.path.join(torch, 'model.safetensors'),
                  os.path.join(torch, 'pytorch_model.bin'))
        os.rename(os.path.join(gguf, 'model.safetensors'), os.path.join(gguf, 'model.gguf'))
        page = self.refused(torch, 4, 'pytorch_model.bin holds weights as', 'save_pretrained')
        self.assertIn('KV cache', page)
        self.refused(gguf, 4, 'model.gguf holds weights as GGUF')
        self.refused(os.path.join(gguf, 'model.gguf'), 4, 'GGUF')

    def test_directories(self):
        empty = os.path.join(SCRATCH, 'empty')
        os.makedirs(empty)
        self.refused(empty, 4, 'config.json: No such file', 'has no tokenizer',
                     'neither model.safetensors nor model.safetensors.index.json')
        self.refused('/nonexistent/model', 4, 'is not a readable directory')

    def test_settings_that_do_not_fit_the_model(self):
        self.refused(DEMO, 2, '--max-model-len 1000000', flags=('--max-model-len', '1000000'))
        self.refused(DEMO, 2, '--tensor-parallel-size 3', flags=('--tensor-parallel-size', '3'))
        self.refused(DEMO, 2, '/nonexistent/keys', flags=('--api-keys', '/nonexistent/keys'))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
