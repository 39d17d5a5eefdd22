"""Trains the demo model's byte-level BPE tokenizer on generated text and writes its files.

usage: make_tokenizer.py MODEL_DIR [--vocab 2048] [--documents 20000] [--seed 1]
"""

import argparse
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from documents import BOS, END, EOS, PAD, SPECIAL, Writer
from world import World

# Words with their leading space, single digits, runs of punctuation, line breaks.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message['role'] == 'system' and not loop.first -%}
    {{- raise_exception('A system message must be the first message.') -}}
  {%- elif message['role'] in ['system', 'user', 'assistant'] -%}
    {{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}
  {%- else -%}
    {{- raise_exception('Roles are system, user and assistant.') -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>' -}}
{%- endif -%}
"""


def texts(documents, seed):
    """Plain text of generated documents: the input of the encoder."""
    pieces = []

    def note(text):
        pieces.append(text)
        return [0] * (len(text) // 4)

    writer = Writer(World(), note, random.Random(seed))
    for _ in range(documents):
        writer.document(800)
    return pieces


def train(vocab, documents, seed):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts(documents, seed), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A <|bos|> $B", special_tokens=[("<|bos|>", BOS)]
    )
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--documents", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tokenizer = train(args.vocab, args.documents, args.seed)
    assert [tokenizer.token_to_id(t) for t in SPECIAL] == list(range(len(SPECIAL)))
    args.model_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.model_dir / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "pad_token": SPECIAL[PAD],
        "additional_special_tokens": SPECIAL[3:],
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (args.model_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {
        "bos_token_id": BOS,
        "eos_token_id": [EOS, END],
        "pad_token_id": PAD,
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.95,
    }
    (args.model_dir / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


if __name__ == "__main__":
    main()
