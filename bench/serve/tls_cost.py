#!/usr/bin/python3
"""What mutual TLS costs: bench/serve/tls_cost.py [--bin FOLDER] [--out FILE].

quire-load asks the same of a server in plaintext and of one with certificates on both sides: 64
streams (token events a second), and one stream after another on one warm connection (first token).
Once of quire-server with the bundled model on the CPU, and once of null_server, which makes a token
for each stream every millisecond at no cost: 64,000 a second, if server and client keep up. Rounds
alternate, and the medians are compared, of CPU time too. Prints and writes JSON; exit code 1 if
mutual TLS takes more than 10 % of the token events a second of the model, or more than a
millisecond of its first token.

FOLDER has the programs: build/release (bin/ and bench/ in it), or bin/ of a pack of
scripts/gpu-pack with its libraries on LD_LIBRARY_PATH. Certificates are those in
FOLDER/../certificates, or made by the openssl program.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness.machine import commit, machine  # noqa: E402
from harness.process import BenchError, Server, find_program  # noqa: E402

STREAMS = 64
LIMITS = {"token_events_lost_percent": 10, "first_token_added_ms": 1}
CERTIFICATES = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")


def make_certificates(folder):
    """An authority, a server and a client of it, for ten years: they guard nothing."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "3650",
            "-subj", "/CN=bench")
    for name in ("server", "client"):
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "3650", "-extfile", "names", "-out", f"{name}.pem")
        (folder / f"{name}.csr").unlink()
    for left_over in ("names", "ca.key", "ca.srl"):
        (folder / left_over).unlink(missing_ok=True)


class Bench:
    """The programs, the certificates, and one measurement of a running server."""

    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        packed = args.bin / "../certificates"
        self.certificates = packed if (packed / "ca.pem").exists() else scratch / "certificates"
        if not (self.certificates / "ca.pem").exists():
            make_certificates(self.certificates)

    def file(self, name):
        return str(self.certificates / name)

    def server(self, kind, tls):
        name = "quire-server" if kind == "model" else "null_server"
        command = [find_program(self.args.bin, name)]
        command += ["--port", "0", "--metrics-port", "0"]
        if kind == "null":
            command += ["--step-ms", 1]
        else:
            command += ["--device", "cpu", "--no-log-requests", "--model", ROOT / "models/demo",
                        "--max-num-seqs", STREAMS]
        if tls:
            command += ["--ssl-certfile", self.file("server.pem"), "--ssl-keyfile",
                        self.file("server.key"), "--ssl-ca-certs", self.file("ca.pem")]
        return Server(command, self.scratch / "server.log")

    def load(self, server, tls, *flags):
        """The result of a run of quire-load, in vLLM's names."""
        command = [find_program(self.args.bin, "quire-load"), "--server", server.address, "--quiet",
                   "--ignore-eos", "--random-input-len", 16, "--result-dir", self.scratch,
                   "--result-filename", "result.json", *flags]
        if tls:
            command += ["--ca-cert", self.file("ca.pem"), "--client-cert", self.file("client.pem"),
                        "--client-key", self.file("client.key")]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"tls_cost: quire-load failed: {done.stderr[-2000:]}\n{server.tail()}")
        return json.loads((self.scratch / "result.json").read_text())

    def measure(self, kind, tls):
        """Token events a second, CPU of the server for a million of them, first token."""
        tokens = 512
        prompts = STREAMS * max(1, (2 if kind == "model" else 16) * self.args.size // 4)
        with self.server(kind, tls) as server:
            self.load(server, tls, "--max-concurrency", STREAMS, "--num-prompts", STREAMS,
                      "--random-output-len", tokens)
            before = server.cpu_seconds()
            many = self.load(server, tls, "--max-concurrency", STREAMS, "--num-prompts", prompts,
                             "--random-output-len", tokens)
            cpu = server.cpu_seconds() - before
            one = self.load(server, tls, "--max-concurrency", 1, "--channels", 1, "--num-warmups",
                            20, "--num-prompts", 100 * self.args.size, "--random-output-len", 2)
        return {"token_events_per_second": many["output_throughput"],
                "server_cpu_seconds_per_million": cpu / many["total_output_tokens"] * 1e6,
                "first_token_ms": one["median_ttft_ms"]}


def compare(plain, tls):
    """Medians of both sides over the rounds, and their difference."""
    def medians(rounds):
        return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}

    a, b = medians(plain), medians(tls)
    lost = 100 * (1 - b["token_events_per_second"] / a["token_events_per_second"])
    return {"plaintext": a, "mutual_tls": b, "token_events_lost_percent": lost,
            "first_token_added_ms": b["first_token_ms"] - a["first_token_ms"],
            "rounds": {"plaintext": plain, "mutual_tls": tls}}


def main():
    text = __doc__.split("\n")
    parser = argparse.ArgumentParser(description=text[0], epilog="\n".join(text[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=4, help="length of a round; 4: some seconds")
    parser.add_argument("--servers", nargs="+", choices=("model", "null"),
                        default=["model", "null"])
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--make-certificates", type=pathlib.Path, metavar="FOLDER",
                        help="make the certificates there, and measure nothing")
    args = parser.parse_args()
    if args.make_certificates:
        make_certificates(args.make_certificates)
        return 0
    result = {"machine": machine(), **commit(), "streams": STREAMS, "limits": LIMITS}
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, pathlib.Path(scratch))
        for kind in args.servers:
            sides = {False: [], True: []}
            for number in range(args.rounds):
                # The order turns round by round, so that neither side is always the warmer one.
                for tls in (False, True) if number % 2 == 0 else (True, False):
                    sides[tls].append(bench.measure(kind, tls))
            result[kind] = compare(sides[False], sides[True])
    print(json.dumps(result, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    judged = result.get("model", result.get("null"))
    return 0 if all(judged[name] <= limit for name, limit in LIMITS.items()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"tls_cost: {error}")
