#!/usr/bin/python3
"""Chats with tools, documents, variables and a clock become the prompts that jinja2 prints, through
the Python client, gRPC and a real server: chat_templates_test.py QUIRE_SERVER QUIRE.
"""

import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import quire
from running_server import BINARY, RunningServer

QUIRE = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo"
TEMPLATES = ROOT / "tests/testdata/chat_templates"
GOLDENS = json.loads((TEMPLATES / "goldens.json").read_text(encoding="utf-8"))
# The clock of make_chat_goldens.py, in the time zone of this process and of its servers.
NOW = datetime.datetime(2024, 7, 6, 15, 4, 9, 1234)
PATIENCE = 120  # seconds: beyond it something hangs


def cases():
    """Family, chat, outcome and text of each golden of a family's template."""
    for name, _, chat, outcome, text in GOLDENS["cases"]:
        if name.endswith(".jinja"):
            yield name.removesuffix(".jinja"), GOLDENS["chats"][chat], outcome, text


def told(family, chat):
    """What a golden chat tells its template beside the messages, as options of the client."""
    return {
        "tools": chat.get("tools", ()),
        "documents": chat.get("documents", ()),
        "template_kwargs": chat.get("kwargs", {}),
        "add_generation_prompt": chat["add_generation_prompt"],
        "template_name": family,
        "template_time": NOW,
    }


def write_model(folder):
    """The bundled model with the special tokens of the goldens and each family's template by name,
    beside two more: one that is refused, and one that fails on every chat.
    """
    for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"):
        if (DEMO / name).exists():
            (folder / name).symlink_to(DEMO / name)
    settings = json.loads((DEMO / "tokenizer_config.json").read_text())
    settings.update(bos_token="<s>", eos_token="</s>")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    named = folder / "additional_chat_templates"
    shutil.copytree(TEMPLATES / "families", named)
    (named / "broken.jinja").write_text("{{ bos_token }}\n  {% include 'x' %}")
    (named / "failing.jinja").write_text("{{ bos_token }}\n{{ messages[0].nothing.name }}")
    (folder / "chat_template.jinja").write_text("default")


class ChatTemplatesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        write_model(cls.folder)
        cls.server = RunningServer("--device", "cpu", "--model", folder.name)
        cls.addClassCleanup(cls.server.stop)
        cls.client = quire.QuireClient(cls.server.target, timeout=PATIENCE)
        cls.addClassCleanup(cls.client.close)

    def ids(self, messages, options=quire.Options(), **changes):
        return [token.id for token in self.client.tokenize(messages, options, **changes)]

    def text(self, messages, **options):
        """The prompt of a chat, from its token ids."""
        return self.client.detokenize(self.ids(messages, **options), skip_special_tokens=False)

    def test_prompts_equal_those_of_jinja2(self):
        outcomes = []
        for family, chat, outcome, text in cases():
            with self.subTest(family=family, chat=chat):
                options = told(family, chat)
                outcomes.append(outcome)
                if outcome == "ok" and text:
                    self.assertEqual(self.text(chat["messages"], **options), text)
                    continue
                with self.assertRaises(quire.InvalidRequest) as refused:
                    self.ids(chat["messages"], **options)
                if outcome == "raised":
                    self.assertIn(f"chat template: {text}", refused.exception.message)
        self.assertGreater(outcomes.count("ok"), 400)
        self.assertGreater(outcomes.count("raised"), 20)

    def test_a_generation_has_the_same_prompt(self):
        compared = 0
        for family, chat, outcome, text in cases():
            if family not in ("clerk", "mimo") or outcome != "ok" or "tools" not in chat:
                continue
            compared += 1
            ids = self.ids(text, add_special_tokens=False)
            options = quire.Options(temperature=0.0, max_tokens=1, **told(family, chat))
            self.assertEqual(self.ids(chat["messages"], options), ids)
            answer = self.client.generate_text(chat["messages"], options)
            self.assertEqual(answer.accepted.prompt_tokens, len(ids))
            # All of its prompt but the last token is found under the ids: it is the same prompt.
            again = self.client.generate_text(ids, temperature=0.0, max_tokens=1)
            self.assertEqual(again.finished.usage.cached_tokens, (len(ids) - 1) // 16 * 16)
            self.assertEqual(again.token_ids, answer.token_ids)
        self.assertGreater(compared, 5)

    def test_the_last_message_is_continued(self):
        """As transformers cuts it: behind the last place of the message's text."""
        continued = 0
        for family, chat, outcome, text in cases():
            last = chat["messages"][-1]["content"]
            if outcome != "ok" or chat["add_generation_prompt"] or not last:
                continue
            if not isinstance(last, str) or last.strip() not in text:
                continue
            options = told(family, chat) | {"add_generation_prompt": None}
            prompt = self.text(chat["messages"], continue_final_message=True, **options)
            self.assertEqual(prompt, text[: text.rindex(last.strip()) + len(last.strip())])
            continued += 1
        self.assertGreater(continued, 50)

    def test_the_command_line_sends_the_same(self):
        for number, (_, chat, outcome, text) in enumerate(c for c in cases() if c[0] == "clerk"):
            self.assertEqual(outcome, "ok")
            flags = ["--template-name", "clerk", "--template-time", NOW.astimezone().isoformat()]
            for name in ("messages", "tools", "documents"):
                if name in chat:
                    path = self.folder / f"{number}_{name}.json"
                    path.write_text(json.dumps(chat[name]), encoding="utf-8")
                    flags += [f"--{name}", str(path)]
            if "kwargs" in chat:
                flags += ["--template-kwargs", json.dumps(chat["kwargs"])]
            if not chat["add_generation_prompt"]:
                flags.append("--no-generation-prompt")
            command = [QUIRE, "--server", self.server.target, "tokenize", *flags]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE,
                check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            ids = [int(token) for token in done.stdout.split()]
            self.assertEqual(self.client.detokenize(ids, skip_special_tokens=False), text)

    def refusal(self, **options):
        """The error of a chat, which is the same for each call."""
        ask = [{"role": "user", "content": "Hello"}]
        errors = []
        for call in (self.client.tokenize, self.client.generate_text):
            with self.assertRaises(quire.InvalidRequest) as refused:
                call(ask, **options)
            errors.append(refused.exception)
        self.assertEqual(errors[0].message, errors[1].message)
        return errors[0]

    def test_a_refused_template_is_told_with_its_file_and_place(self):
        path = self.folder / "additional_chat_templates/broken.jinja"
        error = self.refusal(template_name="broken")
        self.assertEqual(error.code.name, "FAILED_PRECONDITION")
        self.assertEqual(error.reason, "NO_CHAT_TEMPLATE")
        place = f"{path}: chat template: line 2, column 6: block 'include' is not supported"
        self.assertIn(place, error.message)
        self.assertIn(place, self.server.log())

    def test_other_refusals_name_what_is_wrong(self):
        error = self.refusal(template_name="failing")
        self.assertEqual(error.code.name, "INVALID_ARGUMENT")
        self.assertIn("chat template: line 2, column", error.message)
        error = self.refusal(template_name="nope")
        self.assertEqual([v.field for v in error.violations], ["chat.template_name"])
        self.assertIn("only: broken, chatml, clerk", error.message)
        error = self.refusal(template_kwargs={"tools": []})
        self.assertEqual([v.field for v in error.violations], ["chat.template_kwargs"])
        error = self.refusal(continue_final_message=True, add_generation_prompt=True)
        self.assertEqual([v.field for v in error.violations], ["chat.continue_final_message"])


class ChatTemplateFileTest(unittest.TestCase):
    """--chat-template FILE."""

    def test_a_good_one_is_for_every_chat(self):
        path = TEMPLATES / "families/qwen3.jinja"
        server = RunningServer("--device", "cpu", "--chat-template", str(path))
        self.addCleanup(server.stop)
        client = quire.QuireClient(server.target, timeout=PATIENCE)
        self.addCleanup(client.close)
        compared = 0
        for family, chat, outcome, text in cases():
            if family == "qwen3" and outcome == "ok":
                options = told(None, chat)
                ids = [token.id for token in client.tokenize(chat["messages"], **options)]
                self.assertEqual(client.detokenize(ids, skip_special_tokens=False), text)
                compared += 1
        self.assertGreater(compared, 15)

    def test_a_missing_or_a_broken_one_ends_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / "broken.jinja"
            broken.write_text("{{ bos_token }}\n{% endfor %}")
            for path, reason in (
                (f"{folder}/none.jinja", "none.jinja: there is no such file"),
                (broken, "broken.jinja: chat template: line 2, column 4: "),
            ):
                listen = ["--uds", f"{folder}/quire.sock", "--metrics-port", "0"]
                done = subprocess.run(
                    [BINARY, *listen, "--device", "cpu", "--chat-template", path],
                    capture_output=True, text=True, timeout=PATIENCE, check=False,
                )  # fmt: skip
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
