"""Trains the demo model from scratch on one GPU.

usage: train.py MODEL_DIR [--steps 4000] [--seed 1] [--processes N]

MODEL_DIR holds tokenizer.json (make_tokenizer.py); config.json and model.safetensors are written
there, and training.json with the loss curve. Every batch is generated while training runs, from
(seed, step), so no text is seen twice and a run depends on its seed alone (up to the GPU's
rounding).
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import time

import torch

import documents
from model import Decoder, Muon, rope_tables

TOKENS_PER_STEP = 1 << 18
SHORT, LONG = 1024, 4096  # row lengths of the two phases
LONG_FROM = 0.65  # the part of the run after which rows are long
WARMUP_STEPS, DECAY_FROM = 60, 0.45
MUON_RATE, ADAM_RATE = 0.02, 0.004


def rate(step, steps):
    """Trapezoid: warm up, hold, then fall linearly to almost nothing."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    return min(1.0, max(0.0, (1 - step / steps) / (1 - DECAY_FROM)) + 0.002)


def row_length(step, steps):
    return SHORT if step < LONG_FROM * steps else LONG


def batches(steps, seed, processes, tokenizer):
    """Yields one batch of rows a step, made ahead by other processes."""
    tasks = []
    for step in range(steps):
        length = row_length(step, steps)
        tasks.append((f"{seed}/{step}", TOKENS_PER_STEP // length, length + 1))
    pool = multiprocessing.Pool(processes, documents.open_worker, (tokenizer,))
    yield from pool.imap(documents.make_rows, tasks)
    pool.terminate()


def train(folder, steps, seed, processes):
    source = batches(steps, seed, processes, str(folder / "tokenizer.json"))
    pending = next(source)  # starts the processes before CUDA is
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda")
    model = Decoder(seed).to(device)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    tables = {n: rope_tables(n, device) for n in (SHORT, LONG)}
    loss_of = torch.compile(model.loss, dynamic=False)
    curve, start, logged = [], time.monotonic(), None
    for step in range(steps):
        rows = torch.from_numpy(pending.astype("int64")).to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(rows, *tables[row_length(step, steps)])
        loss.backward()
        scale = rate(step, steps)
        muon.step(MUON_RATE * scale)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * scale
        adam.step()
        model.zero_grad(set_to_none=True)
        pending = next(source, None)
        if step % 50 == 0 or step == steps - 1:
            elapsed = time.monotonic() - start
            curve.append(
                {"step": step, "loss": round(loss.item(), 4), "seconds": round(elapsed, 1)}
            )
            speed = (
                ""
                if logged is None
                else f"{50 * TOKENS_PER_STEP / (elapsed - logged) / 1e6:.2f} Mtok/s"
            )
            logged = elapsed
            print(f"step {step} loss {loss.item():.4f} {elapsed:.1f} s {speed}", flush=True)
    model.save(folder)
    report = {
        "seed": seed,
        "steps": steps,
        "tokens": steps * TOKENS_PER_STEP,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(time.monotonic() - start, 1),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "loss": curve,
    }
    (folder / "training.json").write_text(json.dumps(report, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    args = parser.parse_args()
    train(args.model_dir, args.steps, args.seed, args.processes)


if __name__ == "__main__":
    main()
