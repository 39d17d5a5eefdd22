#!/usr/bin/env python3
"""Compares Quire's tokenizer with the `tokenizers` package: same text, one run, one core.

The text is English documentation and source code found on this machine; a vocabulary of realistic
size is trained on other files of the same kind and kept in the build directory; so are three large
ones, in the shapes of Llama 3, Mistral's Tekken and Llama 2. Both must give the same ids. Times are
CPU times. Without the package there is no comparison, and the vocabulary is the demo model's.

usage: [pip install tokenizers==0.23.3]; tokenizer_bench.py BUILD_DIR [RESULT_JSON]
"""

import glob
import gzip
import json
import os
import subprocess
import sys
import sysconfig
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

try:
    import tokenizers
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    tokenizers = None

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ENGLISH = ["/usr/share/perl/**/*.pod", "/usr/share/info/*.gz", "/usr/share/doc/**/*.gz"]
LARGE, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{LARGE}*{SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{LARGE}+{SMALL}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Pieces of one kind, each with the space before it, as SentencePiece trains them.
SPACE = "\u2581"
ONE_KIND = (
    rf"{SPACE}?\p{{L}}[\p{{L}}\p{{M}}]*|\p{{N}}|{SPACE}?[^\p{{L}}\p{{N}}{SPACE}\s]+"
    rf"|{SPACE}+|\s+"
)
CODE = [sysconfig.get_paths()["stdlib"] + "/**/*.py", "/usr/include/**/*.h"]
DOCUMENT_BYTES = 16 << 10
TEST_BYTES = 12 << 20
VOCABULARY = 64000
LARGE_VOCABULARY = 128000
MAX_SPACES = 16  # in one token
ROUNDS = 3


def read_files(patterns, limit):
    """Text of at most `limit` bytes, in the order of file names, which mixes folders."""
    paths = [p for pattern in patterns for p in glob.glob(pattern, recursive=True)]
    total = 0
    for path in sorted(set(paths), key=os.path.basename):
        try:
            opener = gzip.open if path.endswith(".gz") else open
            with opener(path, "rb") as file:
                text = file.read().decode("utf-8").replace("\x1e", "")
        except (OSError, UnicodeDecodeError, EOFError):
            continue
        total += len(text)
        yield text
        if total > limit:
            return


def documents():
    """Half English, half code, cut to pieces of one size."""
    out = []
    for patterns in (ENGLISH, CODE):
        text = "\n".join(read_files(patterns, 40 << 20))
        out.append([text[i : i + DOCUMENT_BYTES] for i in range(0, len(text), DOCUMENT_BYTES)])
    count = min(map(len, out))
    return [d for pair in zip(out[0][:count], out[1][:count]) for d in pair]


def train(path, lines, size, pattern):
    """A byte-level vocabulary."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.save(path)


def train_byte_fallback(path, lines, size, pattern):
    """A vocabulary of characters in the shape of Llama 2, with runs of spaces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="always"),
            pre_tokenizers.Split(Regex(pattern), "isolated"),
        ]
    )
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=3000, special_tokens=first, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    data["pre_tokenizer"] = None
    model = data["model"]
    model.update(byte_fallback=True, fuse_unk=True)
    for count in range(2, MAX_SPACES + 1):
        model["vocab"].setdefault(SPACE * count, len(model["vocab"]))
        model["merges"] += [[SPACE * a, SPACE * (count - a)] for a in range(1, count)]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.save(path)


# Names, and how their vocabularies come about.
SHAPES = {
    "llama3": (train, LLAMA3),
    "tekken": (train, TEKKEN),
    "byte fallback": (train_byte_fallback, ONE_KIND),
}


def package_hash(path, texts):
    """The hash of all ids."""
    tokenizer = Tokenizer.from_file(path)
    state = 0xCBF29CE484222325
    for text in texts:
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            state = ((state ^ token) * 0x100000001B3) & ((1 << 64) - 1)
    return f"{state:016x}"


def package_speed(path, texts):
    """MB/s of the faster of its two ways."""
    tokenizer = Tokenizer.from_file(path)
    size = sum(len(text.encode()) for text in texts)
    best = 1e9
    for _ in range(ROUNDS):
        for encode in (
            lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
            lambda: [tokenizer.encode(text, add_special_tokens=False) for text in texts],
        ):
            begin = time.process_time()
            encode()
            best = min(best, time.process_time() - begin)
    return size / best / 1e6


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measure(build, path, text_path):
    """The lines that the program prints, each as an object."""
    command = [os.path.join(build, "bench", "tokenizer_bench"), path, text_path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def shape_rows(build, work, training, held_out, text_path):
    """The figures of each shape with a large vocabulary, whose ids are the package's."""
    for name, (make, pattern) in SHAPES.items():
        path = os.path.join(work, f"{name.replace(' ', '_')}_{LARGE_VOCABULARY}.json")
        if not os.path.exists(path):
            make(path, training, LARGE_VOCABULARY, pattern)
        lines = measure(build, path, text_path)
        assert package_hash(path, held_out) == lines[1]["hash"], f"{name}: ids differ"
        yield {"shape": name, "vocabulary": LARGE_VOCABULARY, **lines[0], **lines[1]}


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0]}, {len(names)} threads" if names else "unknown"


def main():
    build = sys.argv[1]
    work = os.path.join(build, "tokenizer_bench")
    os.makedirs(work, exist_ok=True)
    texts = documents()
    count = TEST_BYTES // DOCUMENT_BYTES
    step = max(len(texts) // count, 2)
    held_out = texts[::step][:count]
    training = [text for i, text in enumerate(texts) if i % step]
    path = os.path.join(work, f"vocabulary_{VOCABULARY}.json")
    if tokenizers is None:
        path = os.path.join(os.path.dirname(__file__), "../../models/demo/tokenizer.json")
    elif not os.path.exists(path):
        train(path, training, VOCABULARY, LLAMA3)
    text_path = os.path.join(work, "documents")
    with open(text_path, "w", encoding="utf-8", newline="") as out:
        out.write("\x1e".join(held_out))
    lines = measure(build, path, text_path)
    result = {
        "benchmark": "tokenizer",
        "commit": output("git", "rev-parse", "HEAD"),
        "machine": machine(),
        "vocabulary": VOCABULARY if tokenizers else "models/demo",
        "load_ms": lines[0]["load_ms"],
        "documents": lines[1],
        "one_letter": lines[2:],
    }
    if tokenizers is not None:
        assert package_hash(path, held_out) == lines[1]["hash"], "the two do not give the same ids"
        speed = package_speed(path, held_out)
        result["package"] = tokenizers.__version__
        result["package_mb_per_s"] = round(speed, 1)
        result["shapes"] = list(shape_rows(build, work, training, held_out, text_path))
        result["ratio"] = round(lines[1]["encode_mb_per_s"] / speed, 1)
    text = json.dumps(result, indent=2, ensure_ascii=False)
    print(text)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            out.write(text + "\n")


if __name__ == "__main__":
    main()
