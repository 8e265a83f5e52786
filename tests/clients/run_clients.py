#!/usr/bin/env python3
"""The OpenAI client and mstar's own client against a running server of a text model."""
import argparse
import concurrent.futures
import socket
import sys
import time
import unittest
import urllib.request

URL = "http://127.0.0.1:8000"
KEY = "none"
PROMPT = "Once upon a time"

try:
    import openai
except ImportError:
    openai = None
try:
    from mstar.client import MStarClient
except (ImportError, SyntaxError):
    MStarClient = None


def ask(prompt=PROMPT, **fields):
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": 12, "temperature": 0} | fields


@unittest.skipIf(openai is None, "no openai package")
class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
        self.model = self.client.models.list().data[0].id

    def chat(self, **fields):
        return self.client.chat.completions.create(model=self.model, **ask(**fields))

    def streamed(self, **fields):
        text = ""
        for event in self.chat(stream=True, **fields):
            if event.choices:
                text += event.choices[0].delta.content or ""
        return text

    def test_stream_equals_document(self):
        answer = self.chat()
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(self.streamed(), answer.choices[0].message.content)

    def test_several_turns_change_the_answer(self):
        turns = [
            {"role": "system", "content": "You tell stories."},
            {"role": "user", "content": PROMPT},
            {"role": "assistant", "content": "there was a red ball."},
            {"role": "user", "content": "Go on"},
        ]
        self.assertGreater(self.chat(messages=turns).usage.prompt_tokens, self.chat().usage.prompt_tokens)

    def test_stop_string_ends_the_text(self):
        whole = self.chat().choices[0].message.content
        stop = whole[4:8]
        answer = self.chat(stop=[stop])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].message.content, whole[: whole.index(stop)])
        self.assertEqual(self.streamed(stop=stop), whole[: whole.index(stop)])

    def test_seed_decides(self):
        sampled = dict(temperature=1.0, seed=7, n=2)
        first, second = self.chat(**sampled), self.chat(**sampled)
        texts = [choice.message.content for choice in first.choices]
        self.assertEqual(texts, [choice.message.content for choice in second.choices])
        self.assertEqual(texts[1], self.chat(temperature=1.0, seed=8).choices[0].message.content)

    def test_usage_of_a_stream(self):
        events = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(events[-1].choices, [])
        self.assertEqual(events[-1].usage.completion_tokens, 12)

    def test_completions(self):
        answer = self.client.completions.create(
            model=self.model, prompt=[PROMPT, "The dog"], max_tokens=5, extra_body={"top_k": 1}
        )
        self.assertEqual(len(answer.choices), 2)
        self.assertTrue(all(choice.text for choice in answer.choices))

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nobody", **ask())
        self.assertEqual(caught.exception.body["code"], "model_not_found")
        for fields, param in [
            ({"temperature": -1}, "temperature"),
            ({"extra_body": {"no_such_field": 1}}, "no_such_field"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ]:
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**fields)
            self.assertEqual(caught.exception.body["param"], param)

    def test_logprobs(self):
        choice = self.chat(logprobs=True, top_logprobs=2).choices[0]
        tokens = choice.logprobs.content
        self.assertEqual(len(tokens), 12)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob)  # greedy
        streamed = [
            token.logprob
            for event in self.chat(logprobs=True, stream=True)
            for choice in event.choices
            if choice.logprobs
            for token in choice.logprobs.content
        ]
        self.assertEqual(streamed, [token.logprob for token in tokens])
        completion = self.client.completions.create(
            model=self.model, prompt=PROMPT, max_tokens=3, temperature=0, logprobs=1)
        self.assertEqual(len(completion.choices[0].logprobs.token_logprobs), 3)

    def test_developer_role(self):
        turns = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
        self.assertTrue(self.chat(messages=turns).choices[0].message.content)

    def test_an_answer_goes_back_as_it_came(self):
        message = self.chat().choices[0].message
        turns = [{"role": "user", "content": PROMPT}, message, {"role": "user", "content": "Go on"}]
        self.assertTrue(self.chat(messages=turns).choices[0].message.content)

    def test_64_streams(self):
        expected = self.chat().choices[0].message.content
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            texts = list(pool.map(lambda _: self.streamed(), range(64)))
        self.assertEqual(set(texts), {expected})


class Disconnect(unittest.TestCase):
    """Clients that leave in the middle: nothing stays behind."""

    def metric(self, name):
        request = urllib.request.Request(URL + "/metrics", headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request) as response:
            for line in response.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        return None

    def test_nothing_stays(self):
        host, port = URL.removeprefix("http://").split(":")
        body = b'{"prompt": "Once upon a time", "max_tokens": 400, "stream": true, "ignore_eos": true}'
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        for index in range(100):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(head + body)
                if index % 2:
                    connection.recv(100)
        deadline = time.monotonic() + 30
        while self.metric("mstar_requests_active") and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(self.metric("mstar_requests_active"), 0)
        self.assertEqual(self.metric("mstar_requests_running"), 0)
        self.assertEqual(self.metric("mstar_requests_waiting"), 0)


@unittest.skipIf(MStarClient is None, "no mstar-ai package")
class MStar(unittest.TestCase):
    def setUp(self):
        self.client = MStarClient(URL)

    def test_health(self):
        self.assertTrue(self.client.health())

    def test_stream_equals_document(self):
        answer = self.client.chat(PROMPT, max_output_tokens=12, temperature=0)
        self.assertTrue(answer.text)
        pieces = self.client.chat(PROMPT, stream=True, max_output_tokens=12, temperature=0)
        self.assertEqual("".join(piece.text for piece in pieces), answer.text)

    def test_request_id(self):
        self.assertEqual(self.client.generate(text=PROMPT, request_id="mine", max_tokens=1).request_id, "mine")

    def test_unknown_parameter_is_an_error(self):
        with self.assertRaises(Exception):
            self.client.chat(PROMPT, no_such_field=1)

    def test_image_of_a_text_model_is_an_error(self):
        with self.assertRaises(Exception):
            self.client.generate_image("a cat")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default=URL)
    parser.add_argument("--api-key", default=KEY)
    arguments, rest = parser.parse_known_args()
    URL, KEY = arguments.url.rstrip("/"), arguments.api_key
    unittest.main(argv=[sys.argv[0], *rest])
