"""Certificates for tests, made by the openssl program: authorities, leaves, and faulty ones."""

import os
import pathlib
import subprocess

CONFIG = """
[ca]
default_ca = it
[it]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
[leaf]
basicConstraints = CA:FALSE
"""
FAR_PAST, PAST = "20200101000000Z", "20200102000000Z"
FUTURE, FAR_FUTURE = "20481231000000Z", "20491231000000Z"
LOOPBACK = "DNS:localhost,IP:127.0.0.1"


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


class Authority:
    """An authority NAME in `folder`, with NAME.pem and NAME.key."""

    def __init__(self, folder, name):
        self._folder = pathlib.Path(folder, name)
        self._folder.mkdir()
        self.name = name
        self.pem = str(self._folder / "ca.pem")
        self._key = str(self._folder / "ca.key")
        (self._folder / "index").write_text("")
        self._config = self._folder / "openssl.cnf"
        self._config.write_text(CONFIG.format(folder=self._folder))
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", self._key, "-out", self.pem, "-days", "30", "-subj", f"/CN={name}")

    def make(self, name, names=LOOPBACK, begin=FAR_PAST, end=FAR_FUTURE):
        """Paths of a new certificate and its key."""
        pem, key, request = (str(self._folder / f"{name}.{end}") for end in ("pem", "key", "csr"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                key, "-out", request, "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
        openssl("ca", "-batch", "-notext", "-config", str(self._config), "-cert", self.pem,
                "-keyfile", self._key, "-in", request, "-out", pem, "-startdate", begin,
                "-enddate", end, "-extensions", "leaf")
        return pem, key


def rename_over(source, target):
    """Replaces a file by an atomic rename."""
    fresh = f"{target}.new"
    pathlib.Path(fresh).write_bytes(pathlib.Path(source).read_bytes())
    os.rename(fresh, target)
